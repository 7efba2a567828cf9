// Replaces the live part of the page when the cluster has changed; the page works without it.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let asked = 0;

function say(words, well) {
  connection.textContent = words;
  connection.className = well ? "" : "lost";
}

async function refresh() {
  const mine = ++asked;
  const answer = await fetch(location.href, { headers: { "X-Part": "main" } });
  if (answer.status === 401) return location.reload();  // the session is over: to the login
  const text = await answer.text();
  // What is gone is shown as gone (404); answers to older questions come too late.
  if (mine !== asked || answer.status >= 500) return;
  const focused = main.contains(document.activeElement)
    ? document.activeElement.getAttribute("href") : null;
  main.innerHTML = text;
  // The element that had the focus is gone; its successor is the link to the same place.
  if (focused) main.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}

if (main?.hasAttribute("data-live")) {
  const events = new EventSource("/events");
  let known = null;
  events.onopen = () => say("Live", true);
  events.onerror = () => say(
    events.readyState === EventSource.CLOSED
      ? "Not live: reload the page" : "Connection lost, trying again", false);
  events.onmessage = (event) => {
    const changed = known !== null && known !== event.data;
    known = event.data;
    const typing = main.contains(document.activeElement)
      && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    if (changed && !typing) refresh().catch(() => say("Connection lost, trying again", false));
  };
}
