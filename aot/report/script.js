"use strict";

// A link into a folded part unfolds it, and all parts around it.
function reveal() {
  const name = decodeURIComponent(location.hash.slice(1));
  const found = name && document.getElementById(name);
  if (!found) return;
  for (let part = found; part; part = part.parentElement) {
    if (part instanceof HTMLDetailsElement) part.open = true;
  }
  found.scrollIntoView();
}

// Tables sort by the column whose head is pressed; numbers by the value in `data-value`.
function cellValue(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  return value === undefined ? cell.textContent : Number(value);
}

function sortBy(head) {
  const body = head.closest("table").tBodies[0];
  const column = head.cellIndex;
  const isDown = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
  const sign = isDown ? -1 : 1;
  const rows = Array.from(body.rows);
  rows.sort((one, other) => {
    const left = cellValue(one, column);
    const right = cellValue(other, column);
    if (typeof left === "number" && typeof right === "number") return sign * (left - right);
    return sign * String(left).localeCompare(String(right));
  });
  body.append(...rows);
}

// A field above a list shows the rows that contain its text.
function filter(field) {
  const wanted = field.value.toLowerCase();
  let shown = 0;
  const list = document.getElementById(field.dataset.list);
  for (const row of list.children) {
    const isShown = row.textContent.toLowerCase().includes(wanted);
    row.hidden = !isShown;
    shown += isShown ? 1 : 0;
  }
  document.getElementById(field.dataset.count).textContent = `${shown} shown`;
}

function zoom(choice) {
  const picture = document.getElementById(choice.dataset.picture).querySelector("svg");
  const width = Number(choice.dataset.width);
  const isWhole = choice.value === "fit";
  picture.style.width = isWhole ? `min(100%, ${width}px)` : `${width * Number(choice.value)}px`;
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
for (const field of document.querySelectorAll("input[data-list]")) {
  field.addEventListener("input", () => filter(field));
}
for (const choice of document.querySelectorAll("select[data-picture]")) {
  choice.addEventListener("change", () => zoom(choice));
  zoom(choice);
  const place = document.getElementById(choice.dataset.picture);
  place.scrollLeft = (place.scrollWidth - place.clientWidth) / 2;
}
addEventListener("hashchange", reveal);
reveal();
