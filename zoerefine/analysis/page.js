"use strict";
// Values from runs are inserted as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toFixed(4);
}

// A hash's first characters; the cell's title holds all of them.
function shorten(cell, hash) {
  cell.title = hash ?? "";
  return shown(hash).slice(0, 8);
}

function table(id, header, rows, links = {}) {
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((value, column) => {
      const cell = element("td", typeof value === "number" ? { class: "number", title: value } : {});
      const text = header[column] === "commit" ? shorten(cell, value) : shown(value);
      const link = links[header[column]];
      cell.append(link && value ? element("a", { href: link(value) }, text) : text);
      cell.dataset.value = value ?? "";
      line.append(cell);
    });
    body.append(line);
  }
  const head = element("tr");
  header.forEach((name, column) => {
    const button = element("button", { type: "button" }, name);
    const cell = element("th", { scope: "col" }, button);
    button.addEventListener("click", () => sort(head, body, cell, column));
    head.append(cell);
  });
  document.getElementById(id).append(element("thead", {}, head), body);
}

function sort(head, body, cell, column) {
  const up = cell.getAttribute("aria-sort") !== "ascending";
  for (const other of head.children) other.removeAttribute("aria-sort");
  cell.setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = (row) => row.children[column].dataset.value;
  const compare = (a, b) => {
    if ((value(a) === "") !== (value(b) === "")) return value(a) === "" ? 1 : -1; // empty: last
    const [x, y] = [Number(value(a)), Number(value(b))];
    const order = Number.isNaN(x) || Number.isNaN(y) ? value(a).localeCompare(value(b)) : x - y;
    return up ? order : -order;
  };
  body.append(...[...body.children].sort(compare));
}

function filter() {
  const wanted = document.getElementById("filter").value.trim().toLowerCase();
  const rows = [...document.querySelectorAll("#runs tbody tr")];
  for (const row of rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
  const left = rows.filter((row) => !row.hidden).length;
  document.getElementById("shown").textContent = `${left} of ${rows.length}`;
}

// The round number (1, 2 or 5 times a power of ten) at or above a step.
function roundStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].find((digit) => digit * power >= step * 0.999) * power;
}

function curves() {
  const holder = document.getElementById("curves");
  if (!data.curves.length) { holder.append("No run has a curve."); return; }
  const [width, height, edge] = [900, 320, 40];
  const all = data.curves.flatMap((curve) => curve.refined).concat(data.curves.map((c) => c.pseudo));
  const last = Math.max(...data.curves.flatMap((curve) => curve.epochs));
  const finite = all.filter(Number.isFinite);
  const top = Math.max(0, ...finite) * 1.05 || 1;
  const bottom = Math.min(0, ...finite) * 1.05;
  const x = (epoch) => edge + ((width - 2 * edge) * epoch) / last;
  const y = (value) => height - edge - ((height - 2 * edge) * (value - bottom)) / (top - bottom);
  const space = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes, text) => {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    picture.append(made);
    return made;
  };
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", `${data.measure} over ${data.step}s, one curve per run`);
  const step = roundStep((top - bottom) / 4);
  for (let value = Math.ceil(bottom / step) * step; value <= top; value += step) {
    draw("line", { x1: edge, x2: width - edge, y1: y(value), y2: y(value), stroke: "#ddd" });
    draw("text", { x: 0, y: y(value) + 4, "font-size": 12 }, Number(value.toPrecision(3)));
  }
  draw("text", { x: width - edge, y: height - 12, "font-size": 12, "text-anchor": "end" }, `${data.step} ${last}`);
  for (const curve of data.curves) {
    const points = curve.epochs.map((epoch, i) => `${x(epoch)},${y(curve.refined[i])}`);
    const path = draw("path", { d: `M${points.join("L")}`, stroke: curve.color, tabindex: 0, role: "img",
      "aria-label": `${curve.name}, from ${curve.refined[0].toFixed(4)} to ${curve.refined.at(-1).toFixed(4)}` });
    const showName = () => { document.getElementById("curve-name").textContent = path.getAttribute("aria-label"); };
    path.addEventListener("mouseenter", showName);
    path.addEventListener("focus", showName);
  }
  holder.append(picture);
}

function frames() {
  document.getElementById("frames-note").textContent = data.frames_note;
  const source = (picture) => `data:image/jpeg;base64,${picture}`;
  data.frames.forEach((frame, number) => {
    const pair = (before, after, what) => {
      const over = element("img", { src: source(after), alt: `${what}, refined` });
      const under = element("img", { src: source(before), alt: `${what}, ${data.pseudo_label}` });
      const figure = element("figure", {}, element("div", { class: "pair" }, under, over),
        element("figcaption", {}, `${what}: ${data.pseudo_label} left, refined right`));
      return [figure, over];
    };
    const [depth, depthOver] = pair(frame.pseudo, frame.refined, "depth");
    const [error, errorOver] = pair(frame.pseudo_error, frame.refined_error, "relative error");
    const slider = element("input", { type: "range", min: 0, max: 100, value: 50, id: `slider-${number}` });
    const move = () => {
      for (const picture of [depthOver, errorOver]) picture.style.clipPath = `inset(0 0 0 ${slider.value}%)`;
    };
    slider.addEventListener("input", move);
    move();
    const rgb = element("figure", {}, element("img", { src: source(frame.rgb), alt: `picture of ${frame.name}` }),
      element("figcaption", {}, "RGB"));
    document.getElementById("frames").append(element("div", { class: "frame" },
      element("h3", {}, `${frame.name}: AbsRel ${frame.before.toFixed(4)} before, ${frame.after.toFixed(4)} refined`),
      element("label", { for: `slider-${number}` }, "Move the border between before and refined"), slider,
      element("div", { class: "pictures" }, rgb, depth, error)));
  });
}

for (const line of data.summary) document.getElementById("summary").append(element("li", {}, line));
for (const id of ["facts", "legend"]) document.getElementById(id).textContent = data[id];
document.getElementById("overview").src = data.overview;
document.getElementById("settings-note").textContent = data.settings_note;
const settings = document.getElementById("settings");
if (data.settings) settings.src = data.settings; else settings.parentElement.remove();
table("runs", data.runs.header, data.runs.rows, { path: (path) => `file://${encodeURI(path)}` });
table("differences", data.differences.header, data.differences.rows);
if (data.scenes.rows.length) table("scenes", data.scenes.header, data.scenes.rows);
else document.getElementById("by-scene").remove();
if (data.foreign) document.getElementById("h-frames").parentElement.remove();
document.getElementById("overview").alt = document.getElementById("overview").alt.replaceAll("AbsRel", data.measure);
settings.alt = settings.alt.replaceAll("AbsRel", data.measure);
document.getElementById("favour").textContent = data.favour;
document.getElementById("filter").addEventListener("input", filter);
filter();
curves();
if (!data.foreign) frames();
