// The map by keyboard and pointer: arrow keys move between cells, of which one is a tab stop, and the
// line below shows the cell in full. Without this script each cell is a tab stop with a tooltip.
"use strict";

(() => {
  const main = document.getElementById("main");
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  const cellsOf = () => [...main.querySelectorAll(".cells button")];
  const isCell = (element) => element instanceof Element && element.matches(".cells button");

  function stop(chosen) {
    for (const cell of cellsOf()) cell.tabIndex = cell === chosen ? 0 : -1;
  }

  function first() {
    const cells = cellsOf();
    const active = cells.find((cell) => cell === document.activeElement);
    stop(active ?? cells.find((cell) => cell.ariaPressed === "true") ?? cells[0]);
  }

  // The cell of the next line whose middle is nearest.
  function beside(cells, from, direction) {
    const here = from.getBoundingClientRect();
    const others = cells.map((cell) => [cell, cell.getBoundingClientRect()])
      .filter(([, box]) => direction * (box.top - here.top) > here.height / 2);
    const distance = ([, box]) => 1000 * Math.abs(box.top - here.top) + Math.abs(box.left - here.left);
    return others.sort((a, b) => distance(a) - distance(b))[0]?.[0];
  }

  function next(from, key) {
    const cells = cellsOf();
    if (key in steps) {
      const place = cells.indexOf(from) + steps[key];
      return cells[Math.min(Math.max(place, 0), cells.length - 1)];
    }
    if (key === "ArrowUp" || key === "ArrowDown") return beside(cells, from, key === "ArrowDown" ? 1 : -1);
    return undefined;
  }

  function detail(cell) {
    const line = main.querySelector(".detail");
    if (line) line.textContent = cell.title;
  }

  main.addEventListener("keydown", (event) => {
    if (!isCell(event.target)) return;
    const to = next(event.target, event.key);
    if (!to) return;
    event.preventDefault();
    to.focus();
  });
  main.addEventListener("focusin", (event) => {
    if (!isCell(event.target)) return;
    stop(event.target);
    detail(event.target);
  });
  main.addEventListener("pointerover", (event) => {
    if (isCell(event.target)) detail(event.target);
  });
  new MutationObserver(first).observe(main, { childList: true });
  first();
})();
