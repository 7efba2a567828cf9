// Replaces the live part of the page when the cluster has changed; the page works without it.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");

async function refresh() {
  const answer = await fetch(location.href, { headers: { "X-Part": "main" } });
  if (!answer.ok) return;
  const focused = document.activeElement?.getAttribute?.("href");
  main.innerHTML = await answer.text();
  // The element that had the focus is gone; its successor is the link to the same place.
  if (focused) main.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}

if (main?.hasAttribute("data-live")) {
  const events = new EventSource("/events");
  let known = null;
  events.onopen = () => { connection.textContent = "Live"; };
  events.onerror = () => { connection.textContent = "Connection lost, trying again"; };
  events.onmessage = (event) => {
    const changed = known !== null && known !== event.data;
    known = event.data;
    const typing = main.contains(document.activeElement)
      && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
    if (changed && !typing) refresh();
  };
}
