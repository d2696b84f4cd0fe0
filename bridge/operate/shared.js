"use strict";
// What both pages use.
const $ = id => document.getElementById(id);
const number = x => x === null || x === undefined ? "?" : Math.round(x).toLocaleString("en");
const plural = (n, one) => `${number(n)} ${n === 1 ? one : one + "s"}`;

function duration(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return "under 1 s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

// Changes only what differs: screen readers announce changes, and an open page does not grow.
function put(element, value) { if (element.textContent !== value) element.textContent = value; }
function text(id, value) { put($(id), value); }
function kind(element, value) { if (element.className !== value) element.className = value; }
function children(parent, count, tag) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(document.createElement(tag));
  return parent.children;
}

// The rows of a table. On a narrow screen each is a card, where `data-label` names the value.
function rows(table, count) {
  const body = table.tBodies[0], labels = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  while (body.rows.length > count) body.deleteRow(-1);
  while (body.rows.length < count) {
    const row = body.insertRow();
    row.setAttribute("role", "row");
    for (const label of labels) {
      const cell = row.insertCell();
      cell.setAttribute("role", "cell");
      cell.dataset.label = label;
    }
  }
  return body.rows;
}
function cells(row, values) {
  values.forEach((value, i) => {
    const [shown, how] = Array.isArray(value) ? value : [value, ""];
    if (shown !== null) put(row.cells[i], shown);
    kind(row.cells[i], shown === "" ? `${how} empty` : how);
  });
}

// Calls `take(name, value)` for each server-sent event until the stream ends.
async function take(answer, taken) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {done, value} = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [name, data] = event.split("\ndata: ");
      taken(name.slice("event: ".length), JSON.parse(data));
    }
  }
}

// How many slabs a strip has room for.
const roomIn = strip => Math.max(10, Math.floor(strip.clientWidth / 5));
