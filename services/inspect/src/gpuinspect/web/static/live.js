// Replaces the live part of the page when the cluster has changed, and shows times in the browser's
// time zone. The page works without it.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const offline = document.getElementById("offline");
const retryMilliseconds = 5000;
const ageMilliseconds = 10000;
const focusMilliseconds = 500;  // a click on the button of a form ends before the button is replaced
let requests = 0;
let shown = main?.dataset.revision;  // what the page shows, and the newest there is
let newest = shown;
let retry;

function show(text, connected) {
  connection.textContent = text;
  connection.className = connected ? "" : "lost";
  if (offline.hidden === !connected) {
    offline.hidden = connected;
    const since = new Date().toLocaleTimeString();
    document.getElementById("offline-since").textContent = connected ? "" : `Last contact: ${since}.`;
  }
}

// What a page that is connected shows: a snapshot is as of its time.
function live() {
  return main.querySelector("[data-snapshot]")?.textContent ?? "Live";
}

function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = moment.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
    if (!time.classList.contains("age")) time.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

// A selector of the link or button that leads where this one does.
function placeOf(element) {
  const quoted = (name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`;
  if (element.hasAttribute("href")) return quoted("href");
  return element.matches("button[name]") ? quoted("name") + quoted("value") : null;
}

// Ages as the server writes them: 45s, 12m, 3h, 5d.
function grow() {
  if (main.querySelector("[data-snapshot]")) return;  // its pods do not get older
  for (const time of main.querySelectorAll("time.age")) {
    const seconds = Math.max(Math.floor((Date.now() - new Date(time.dateTime)) / 1000), 0);
    if (Number.isNaN(seconds)) continue;
    const units = [[86400, "d", 2], [3600, "h", 3], [60, "m", 3], [1, "s", 0]];
    const [size, letter] = units.find(([size, , least]) => seconds >= size * least);
    time.textContent = `${Math.floor(seconds / size)}${letter}`;
  }
}

async function refresh() {
  const mine = ++requests;
  const answer = await fetch(location.href, { headers: { "X-Part": "main" } });
  if (answer.status === 401) return location.reload();  // the session has expired: to the login
  const text = await answer.text();
  if (mine !== requests) return;  // a newer request is under way
  if (answer.status === 429 || answer.status >= 500) throw new Error(`${answer.status}`);
  // An object that is gone is shown as gone (404).
  const focused = main.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  const opened = main.querySelector("details")?.open;
  const scrolled = main.querySelector(".map")?.scrollTop ?? 0;
  main.innerHTML = text;
  localise(main);
  const details = main.querySelector("details");
  if (details && opened) details.open = true;
  // The element that had the focus is gone; its successor leads to the same place.
  if (focused) main.querySelector(focused)?.focus();
  const map = main.querySelector(".map");
  if (map) map.scrollTop = scrolled;
  shown = answer.headers.get("X-Revision");
}

// A new main part would discard what the viewer types.
function typing() {
  return main.contains(document.activeElement)
    && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
}

function catchUp() {
  clearTimeout(retry);
  if (shown === newest) return;
  if (typing()) return show("Update waits for your input", true);
  refresh().then(() => show(live(), true), (error) => {
    const busy = error.message === "429";
    show(`${busy ? "Server busy" : "Connection lost"}, trying again`, busy);
    retry = setTimeout(catchUp, retryMilliseconds);
  });
}

localise(document);
setInterval(grow, ageMilliseconds);
if (shown) {
  main.addEventListener("focusout", () => setTimeout(catchUp, focusMilliseconds));
  const events = new EventSource("/events");
  events.onopen = () => show(live(), true);
  events.onerror = () => show(
    events.readyState === EventSource.CLOSED
      ? "Not live: reload the page" : "Connection lost, trying again", false);
  events.onmessage = (event) => {
    newest = event.data;
    catchUp();
  };
}
