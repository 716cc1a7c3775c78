"use strict";
// The page keeps no state of its own but the frame and the cursor: each change is answered with
// all that is shown. It names the session that the page was loaded from, and what it removes, so
// that a page that stayed open changes nothing else.

const part = (id) => document.getElementById(id);
const REACH = 8; // pixels: how far from the cursor a measurement is removed
let state = null;
let cursor = { x: 0, y: 0 };
let asked = 0; // the number of the last question about a pixel; older answers are not shown

async function ask(path, change) {
  const options = change && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(change),
  };
  const answer = await fetch(path, options).catch(() => null);
  if (!answer) throw new Error("the command has ended: start it again");
  const found = await answer.json().catch(() => ({ fault: "open the printed address again" }));
  if (!answer.ok) throw new Error(found.fault);
  return found;
}

async function change(path, values) {
  try {
    show(await ask(path, { session: state.session, ...values }));
    return true;
  } catch (fault) {
    part("fault").textContent = fault.message;
    return false;
  }
}

function show(found) {
  const first = !state;
  state = found;
  if (first) {
    // The value, too: a text alone loses spaces that are double or at an end.
    part("frame").replaceChildren(...state.frames.map((name) => new Option(name, name)));
    part("ray-choice").hidden = !state.has_intrinsics;
    part("ray").checked = state.has_intrinsics;
    choose(state.next ? state.next.frame : state.frames[0]);
  }
  part("fault").textContent = state.fault;
  part("calibration").textContent = calibrationText();
  part("advice").textContent = state.next
    ? `Most helpful next: measure ${state.next.words} of frame ${state.next.frame}, near x `
      + `${state.next.x} y ${state.next.y}. It takes ${percent(state.next.gain)} of the variance.` : "";
  part("go").hidden = !state.next;
  part("files").textContent = `${state.file} holds the measurements, ${state.out} the calibration.`;
  part("measurements").replaceChildren(...state.measurements.map(item));
  draw();
  tellPixel();
}

const percent = (share) => `${Math.round(100 * share)}%`;
const interval = (range) =>
  `${range.middle.toFixed(2)} (90%: ${range.low.toFixed(2)} to ${range.high.toFixed(2)})`;

function calibrationText() {
  const found = state.calibration;
  if (!found) return "Nothing measured yet.";
  return `${found.count} measured. Factor ${interval(found.factor)} at ${found.at_m} m, range `
    + `${interval(found.range)}. 90% of the pixels at ${found.at_m} m are within a factor of `
    + `${found.within.toFixed(2)}.` + (found.refiner ? ` By these, ${found.refiner}.` : "");
}

function item(one) {
  const line = document.createElement("li");
  const [[x, y]] = one.pixels;
  const kind = one.pixels.length > 1 ? " between two pixels" : one.along_ray ? " from the camera" : "";
  line.append(`${one.frame}, x ${x} y ${y}: ${one.metres} m${kind} `);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Remove";
  button.setAttribute("aria-label", `Remove ${one.metres} m of ${one.frame}`);
  button.addEventListener("click", () => change("remove", one));
  line.append(button);
  if (one.doubt) {
    const doubt = document.createElement("p");
    doubt.className = "doubt";
    doubt.textContent = one.doubt;
    line.append(doubt);
  }
  return line;
}

function choose(name) {
  part("frame").value = name;
  part("form").hidden = true;
  part("stage").setAttribute("aria-busy", "true"); // until the picture has come
  part("pixel").textContent = `loading ${name}`;
  asked++;
  part("picture").src = `frame.jpg?name=${encodeURIComponent(name)}`;
  part("picture").alt = `Frame ${name}`;
}

const isLoading = () => part("stage").getAttribute("aria-busy") === "true";

function step(by) {
  const at = part("frame").selectedIndex + by;
  if (at >= 0 && at < state.frames.length) choose(state.frames[at]);
}

function sizes() {
  return { width: part("picture").naturalWidth, height: part("picture").naturalHeight };
}

function moveTo(x, y) {
  const { width, height } = sizes();
  cursor = {
    x: Math.min(Math.max(x, 0), width - 1), y: Math.min(Math.max(y, 0), height - 1),
  };
  draw();
  tellPixel();
}

function draw() {
  const { width, height } = sizes();
  if (!width) return;
  part("stage").style.maxWidth = `calc((100vh - 17rem) * ${width / height})`; // all in the window
  const marks = part("marks");
  marks.setAttribute("viewBox", `-0.5 -0.5 ${width} ${height}`); // pixels' centres are whole numbers
  const scale = width / (marks.clientWidth || width);
  const { x, y } = cursor;
  const far = 12 * scale, near = 3 * scale;
  const cross = `M${x - far} ${y}H${x - near}M${x + near} ${y}H${x + far}`
    + `M${x} ${y - far}V${y - near}M${x} ${y + near}V${y + far}`;
  const drawn = [shape("path", { d: cross, class: "under" }), shape("path", { d: cross })];
  for (const one of state.measurements.filter((line) => line.frame === part("frame").value)) {
    for (const [cx, cy] of one.pixels) {
      const at = { cx, cy, r: 6 * scale };
      drawn.push(shape("circle", { ...at, class: "under" }));
      drawn.push(shape("circle", { ...at, class: one.doubt ? "doubt" : "" }));
    }
    const [[tx, ty]] = one.pixels;
    const label = shape("text", {
      x: tx + 9 * scale, y: ty - 6 * scale, "font-size": 14 * scale, "stroke-width": 3 * scale,
    });
    label.textContent = `${one.metres} m`;
    drawn.push(label);
  }
  marks.replaceChildren(...drawn);
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

async function tellPixel() {
  if (isLoading()) return;
  const number = ++asked;
  const { x, y } = cursor;
  const words = new URLSearchParams({ name: part("frame").value, x, y });
  let text = `x ${x}, y ${y}`;
  try {
    const found = await ask(`pixel?${words}`);
    text += found.predicted_m === undefined ? ": no depth is predicted here"
      : `: predicted ${found.predicted_m.toFixed(2)} m, corrected ${found.corrected_m.toFixed(2)} m `
        + `(90%: ${found.low_m.toFixed(2)} to ${found.high_m.toFixed(2)})`;
  } catch (fault) {
    text += `: ${fault.message}`;
  }
  if (number === asked) part("pixel").textContent = text;
}

function nearest() {
  const here = state.measurements
    .filter((one) => one.frame === part("frame").value)
    .map((one) => ({
      one, far: Math.min(...one.pixels.map(([x, y]) => Math.hypot(x - cursor.x, y - cursor.y))),
    }))
    .sort((a, b) => a.far - b.far);
  return here.length && here[0].far <= REACH ? here[0].one : null;
}

function openField() {
  part("form").hidden = false;
  const there = nearest();
  const same = there && there.pixels[0][0] === cursor.x && there.pixels[0][1] === cursor.y;
  part("metres").value = same ? there.metres : "";
  part("metres").focus();
}

function closeField() {
  part("form").hidden = true;
  part("stage").focus();
}

const KEYS = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
};

part("stage").addEventListener("keydown", (event) => {
  const move = KEYS[event.key];
  const by = event.shiftKey ? 10 : 1;
  if (isLoading() && !event.key.startsWith("Page")) return;
  if (move) moveTo(cursor.x + by * move[0], cursor.y + by * move[1]);
  else if (event.key === "Enter") openField();
  else if (event.key === "Delete") {
    const there = nearest();
    if (there) change("remove", there);
  } else if (event.key === "PageUp") step(-1);
  else if (event.key === "PageDown") step(1);
  else return;
  event.preventDefault();
});

part("stage").addEventListener("click", (event) => {
  if (isLoading()) return;
  const box = part("picture").getBoundingClientRect();
  const { width, height } = sizes();
  moveTo(
    Math.floor(((event.clientX - box.left) / box.width) * width),
    Math.floor(((event.clientY - box.top) / box.height) * height),
  );
  openField();
});

part("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const along = state.has_intrinsics && part("ray").checked ? { along: "ray" } : {};
  const metres = part("metres").value.trim().replace(",", ".");
  if (await change("add", { frame: part("frame").value, ...cursor, metres, ...along })) closeField();
});

part("form").addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeField();
});

part("picture").addEventListener("load", () => {
  part("stage").removeAttribute("aria-busy");
  if (cursor.x || cursor.y) moveTo(cursor.x, cursor.y);
  else moveTo(Math.floor(sizes().width / 2), Math.floor(sizes().height / 2));
});
part("picture").addEventListener("error", () => {
  part("pixel").textContent = `${part("frame").value} cannot be read`;
});
part("frame").addEventListener("change", () => choose(part("frame").value));
part("previous").addEventListener("click", () => step(-1));
part("next").addEventListener("click", () => step(1));
part("go").addEventListener("click", () => {
  cursor = { x: state.next.x, y: state.next.y };
  choose(state.next.frame);
  part("stage").focus();
});
window.addEventListener("resize", () => state && draw());
ask("state").then(show, (fault) => { part("fault").textContent = fault.message; });
