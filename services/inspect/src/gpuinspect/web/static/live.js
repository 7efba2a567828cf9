// Replaces the live part of the page when the cluster has changed, and shows times in the browser's
// time zone. The page works without it.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const offline = document.getElementById("offline");
const retryMilliseconds = 5000;
const checkMilliseconds = 10000;
const refusedMilliseconds = 15000;
const silentMilliseconds = 40000;  // the server sends an event every 15 seconds at least
const focusMilliseconds = 500;  // a click on the button of a form ends before the button is replaced
let requests = 0;
let shown = main?.dataset.revision;  // what the page shows, and the newest there is
let newest = shown;
let retry;
let events;
let reopen;
let awaited;  // since when the next event is due
let contact;  // when the server was last heard
let serverAhead;  // milliseconds by which the server's clock is ahead of the browser's

function show(text, connected) {
  if (connection.textContent !== text) connection.textContent = text;  // screen readers read it again
  connection.className = connected ? "" : "lost";
  if (offline.hidden === !connected) {
    offline.hidden = connected;
    const since = contact?.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    document.getElementById("offline-since").textContent = connected || !since ? "" : `Last contact: ${since}.`;
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

// A selector of the link, button, table or legend that takes the place of this one.
function placeOf(element) {
  const quoted = (name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`;
  if (element.hasAttribute("href")) return quoted("href");
  if (element.matches("button[name]")) return quoted("name") + quoted("value");
  if (element.matches(".scroll")) return `.scroll${quoted("aria-label")}`;
  return element.matches("summary") ? "summary" : null;
}

// Ages as the server writes them, by its clock: 45s, 12m, 3h, 5d.
function grow() {
  if (main.querySelector("[data-snapshot]")) return;  // its pods do not get older
  if (serverAhead === undefined) return;
  for (const time of main.querySelectorAll("time.age")) {
    const seconds = Math.max(Math.floor((Date.now() + serverAhead - new Date(time.dateTime)) / 1000), 0);
    if (Number.isNaN(seconds)) continue;
    const units = [[86400, "d", 2], [3600, "h", 3], [60, "m", 3], [1, "s", 0]];
    const [size, letter] = units.find(([size, , least]) => seconds >= size * least);
    time.textContent = `${Math.floor(seconds / size)}${letter}`;
  }
}

async function refresh() {
  const mine = ++requests;
  const answer = await fetch(location.href, { headers: { "X-Part": "main" } });
  const revision = answer.headers.get("X-Revision");
  const read = main.querySelector(".taken");  // a state of the cluster is shown, and is kept
  if (answer.status === 429 || (answer.status >= 500 && (read || !revision))) throw new Error(`${answer.status}`);
  if (!revision) return location.reload();  // of the login, or of a proxy
  const text = await answer.text();
  if (mine !== requests) return;  // a newer request is under way
  // An object that is gone is shown as gone (404).
  const focused = main.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  const opened = main.querySelector("details")?.open;
  const scrolling = () => [...main.querySelectorAll(".map, .scroll")];
  const scrolled = scrolling().map((each) => [each.scrollLeft, each.scrollTop]);
  main.innerHTML = text;
  localise(main);
  const details = main.querySelector("details");
  if (details && opened) details.open = true;
  // The element that had the focus is gone; its successor leads to the same place.
  if (focused) main.querySelector(focused)?.focus({ preventScroll: true });
  scrolling().forEach((each, place) => each.scrollTo(...(scrolled[place] ?? [0, 0])));
  shown = revision;
  contact = new Date();
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

function lost() {
  show("Connection lost, trying again", false);
}

function heard() {
  contact = new Date();
  awaited = Date.now();
}

// A hidden page has no stream: a browser opens six connections to a server, for all its tabs.
function listen() {
  clearTimeout(reopen);
  events?.close();
  if (document.hidden) {
    if (offline.hidden) show("", true);
    return;
  }
  awaited = Date.now();
  events = new EventSource("/events");
  events.onopen = () => {
    heard();
    show(live(), true);
  };
  events.onerror = () => {
    if (events.readyState !== EventSource.CLOSED) return lost();
    // The server, or a proxy before it, refuses the stream, and the browser gives up.
    reopen = setTimeout(listen, refusedMilliseconds);
    newest = undefined;
    if (typing()) lost();
    else catchUp();
  };
  events.onmessage = (event) => {
    heard();
    serverAhead = Number(event.lastEventId) - Date.now();
    if (event.data === newest) return;
    newest = event.data;
    catchUp();
  };
}

// A connection may be dead without an error, as after a sleep of the computer.
function check() {
  grow();
  if (!shown || document.hidden || Date.now() - awaited < silentMilliseconds) return;
  lost();
  listen();
}

localise(document);
setInterval(check, checkMilliseconds);
if (shown) {
  main.addEventListener("focusout", () => setTimeout(catchUp, focusMilliseconds));
  document.addEventListener("visibilitychange", listen);
  listen();
}
