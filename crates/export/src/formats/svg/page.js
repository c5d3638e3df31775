// Zooming, searching, and fitting the width to the window. Without scripts the picture is complete, 1200 pixels wide.
"use strict";
const MARGIN = 10, CHARACTER = 7.25, LEAST = 0.5;
const page = document.documentElement;
const element = (id) => document.getElementById(id);
const frames = [...element("frames").children].map((group) => {
  const [tip, box, text] = group.children;
  const name = tip.textContent.replace(/ \([^(]*\)$/, "");
  const number = (attribute) => Number(box.getAttribute(attribute));
  return { group, box, text, name, label: text.getAttribute("data-label") ?? name, start: number("data-start"),
    amount: number("data-amount"), depth: number("data-depth") };
});
const whole = frames[0];
const height = Number(page.getAttribute("height"));
let zoomed = whole;
let wanted = "";

function fit(label, width) {
  const room = Math.floor((width - 6) / CHARACTER);
  if (room < 3) return "";
  return label.length <= room ? label : label.slice(0, room - 2) + "..";
}

function draw() {
  const width = Math.max(window.innerWidth || 1200, 400);
  page.setAttribute("width", width);
  page.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const scale = (width - 2 * MARGIN) / zoomed.amount;
  const end = zoomed.start + zoomed.amount;
  for (const frame of frames) {
    const outer = frame.depth < zoomed.depth && frame.start <= zoomed.start && frame.start + frame.amount >= end;
    const inside = frame.depth >= zoomed.depth && frame.start >= zoomed.start && frame.start < end;
    const from = outer ? MARGIN : MARGIN + (frame.start - zoomed.start) * scale;
    const across = outer ? width - 2 * MARGIN : frame.amount * scale;
    const shown = outer || (inside && across >= LEAST);
    frame.group.classList.toggle("hidden", !shown);
    frame.group.classList.toggle("outer", outer);
    if (!shown) continue;
    frame.box.setAttribute("x", from);
    frame.box.setAttribute("width", across);
    frame.text.setAttribute("x", from + 3);
    frame.text.textContent = fit(frame.label, across);
  }
  for (const id of ["title", "subtitle"]) element(id).setAttribute("x", width / 2);
  for (const id of ["search", "matched"]) element(id).setAttribute("x", width - MARGIN);
  element("reset").classList.toggle("hidden", zoomed === whole);
}

function zoom(frame) {
  zoomed = frame;
  draw();
}

// A regular expression; what is none is plain text.
function pattern(text) {
  try {
    return new RegExp(text, "i");
  } catch {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
  }
}

function search(text) {
  wanted = text;
  const matches = text && pattern(text);
  let sum = 0, end = 0;
  // Frames are in the order of their start, outer ones first: a match inside another one is not counted again.
  for (const frame of frames) {
    const found = Boolean(matches) && matches.test(frame.name);
    frame.group.classList.toggle("found", found);
    if (found && frame.start >= end) {
      sum += frame.amount;
      end = frame.start + frame.amount;
    }
  }
  element("matched").textContent = text ? `${text}: ${(100 * sum / whole.amount).toFixed(1)} % of the width` : "";
  element("search").textContent = text ? "Clear search" : "Search";
}

function ask() {
  if (wanted) return search("");
  const text = prompt("Search for text or a regular expression:");
  if (text) search(text);
}

for (const frame of frames) frame.group.addEventListener("click", () => zoom(frame));
element("reset").addEventListener("click", () => zoom(whole));
element("search").addEventListener("click", ask);
window.addEventListener("keydown", (event) => {
  if (event.key === "/" || (event.key === "f" && (event.ctrlKey || event.metaKey))) {
    event.preventDefault();
    ask();
  } else if (event.key === "Escape") {
    if (wanted) search("");
    else zoom(whole);
  }
});
window.addEventListener("resize", draw);
draw();
