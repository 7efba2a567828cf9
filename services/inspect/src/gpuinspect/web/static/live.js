// Replaces the live part of the page when the cluster has changed, and shows times in the browser's
// time zone. The page works without it.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const offline = document.getElementById("offline");
let asked = 0;

function show(text, connected) {
  connection.textContent = text;
  connection.className = connected ? "" : "lost";
  if (offline.hidden === !connected) {
    offline.hidden = connected;
    const since = new Date().toLocaleTimeString();
    document.getElementById("offline-since").textContent = connected ? "" : `Last contact: ${since}.`;
  }
}

function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = moment.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
    time.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

async function refresh() {
  const mine = ++asked;
  const answer = await fetch(location.href, { headers: { "X-Part": "main" } });
  if (answer.status === 401) return location.reload();  // the session has expired: to the login
  const text = await answer.text();
  // An object that is gone is shown as gone (404); answers to older requests are dropped.
  if (mine !== asked || answer.status >= 500) return;
  const focused = main.contains(document.activeElement)
    ? document.activeElement.getAttribute("href") : null;
  const opened = main.querySelector("details")?.open;
  main.innerHTML = text;
  localise(main);
  const details = main.querySelector("details");
  if (details && opened) details.open = true;
  // The element that had the focus is gone; its successor is the link to the same place.
  if (focused) main.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}

localise(document);
if (main?.hasAttribute("data-live")) {
  const events = new EventSource("/events");
  let known = null;
  events.onopen = () => show("Live", true);
  events.onerror = () => show(
    events.readyState === EventSource.CLOSED
      ? "Not live: reload the page" : "Connection lost, trying again", false);
  events.onmessage = (event) => {
    const changed = known !== null && known !== event.data;
    known = event.data;
    const typing = main.contains(document.activeElement)
      && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    if (changed && !typing) refresh().catch(() => show("Connection lost, trying again", false));
  };
}
