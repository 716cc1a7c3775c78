// Charts drawn as wide as the page, with ticks at round numbers.

const SVG = "http://www.w3.org/2000/svg";
const EDGE = { left: 52, right: 12, top: 12, bottom: 44 };

function svg(parent, tag, attributes = {}, text = undefined) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// The round number (1, 2 or 5 times a power of ten) at or above a step.
function roundStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 5, 10].find((digit) => digit * power >= step * 0.999) * power;
}

// About `count` numbers, and at least two where `smallest`, the least step, allows it.
function ticks(low, high, count, smallest = 0) {
  const step = Math.max(roundStep((high - low) / count), smallest);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found.length < 2 && step > smallest ? ticks(low, high, 2 * count, smallest) : found;
}

function decades(low, high, count) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const inside = (digits) => {
    const found = [];
    for (let power = from; power <= to; power += 1) {
      for (const digit of digits) found.push(Number((digit * 10 ** power).toPrecision(3)));
    }
    return found.filter((value) => value >= low && value <= high);
  };
  const choices = [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]].map(inside);
  const found = choices.find((values) => values.length <= count) ?? choices[3];
  const every = Math.ceil(found.length / count);
  return found.length < 2 ? ticks(low, high, count) : found.filter((_, i) => i % every === 0);
}

// A scale over the finite values, with some room on both sides.
function scale(values, { log = false, margin = 0.05 } = {}) {
  const finite = values.filter(Number.isFinite);
  let [low, high] = [finite, finite].map((all, i) =>
    all.reduce((a, b) => (i ? Math.max(a, b) : Math.min(a, b)), all[0] ?? 0));
  if (log) {
    const factor = (high / low) ** margin;
    return { low: low / factor, high: high * factor, log };
  }
  const size = Math.max(Math.abs(low), Math.abs(high));
  const room = margin * (high - low > 1e-9 * size ? high - low : size || 1);
  return { low: low - room, high: high + room, log };
}

function share({ low, high, log }, value) {
  const at = log ? Math.log : (number) => number;
  return (at(value) - at(low)) / (at(high) - at(low));
}

// Draw now and whenever the width changes: draw(axes) gets x(), y() and the svg element.
function chart(holder, { label, x, y, xName, rows = [], height = 300, wholeX = false }, draw) {
  const render = () => {
    const width = Math.max(240, holder.clientWidth);
    const left = rows.length ? 8 : EDGE.left;
    const picture = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ class: "chart", viewBox: `0 0 ${width} ${height}`,
      height, role: "img", "aria-label": label })) picture.setAttribute(name, value);
    const bottom = height - EDGE.bottom;
    const placeX = (value) => left + (width - left - EDGE.right) * share(x, value);
    const placeY = (value) => bottom - (bottom - EDGE.top) * share(y, value);
    const most = Math.max(2, Math.floor(width / 90));
    for (const value of x.log ? decades(x.low, x.high, most) : ticks(x.low, x.high, most, wholeX ? 1 : 0)) {
      if (rows.length) svg(picture, "line", { class: "grid", x1: placeX(value), x2: placeX(value), y1: EDGE.top, y2: bottom });
      svg(picture, "text", { class: "x-tick", x: placeX(value), y: bottom + 18, "text-anchor": "middle" }, value);
    }
    if (!rows.length) {
      for (const value of y.log ? decades(y.low, y.high, 6) : ticks(y.low, y.high, 5)) {
        svg(picture, "line", { class: "grid", x1: left, x2: width - EDGE.right, y1: placeY(value), y2: placeY(value) });
        svg(picture, "text", { class: "y-tick", x: left - 6, y: placeY(value) + 4, "text-anchor": "end" }, value);
      }
    }
    rows.forEach((name, row) => {
      const most = Math.floor((width - 16) / 7);
      const text = name.length > most ? `${name.slice(0, most - 1)}…` : name;
      svg(picture, "text", { x: left, y: placeY(row) - 10 }, text);
      svg(picture, "line", { class: "grid", x1: left, x2: width - EDGE.right, y1: placeY(row), y2: placeY(row) });
    });
    svg(picture, "text", { x: (left + width - EDGE.right) / 2, y: height - 6, "text-anchor": "middle" }, xName);
    draw({ picture, x: placeX, y: placeY, right: width - EDGE.right });
    holder.replaceChildren(picture);
  };
  let drawn = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth !== drawn) render();
    drawn = holder.clientWidth;
  }).observe(holder);
}

function learningCurves(data) {
  const holder = document.getElementById("curves"), choice = document.getElementById("curve-choice");
  const nameLine = document.getElementById("curve-name");
  if (!data.curves.length) {
    choice.parentElement.remove();
    holder.append("No run has a curve.");
    return;
  }
  const values = data.curves.flatMap((curve) => curve.values);
  const [least, most] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
  const log = least > 0 && most > 3 * least;
  const y = scale(values, { log }), span = y.high - y.low;
  const levels = data.curves.map((curve) => curve.pseudo).filter(Number.isFinite);
  const pseudo = levels.reduce((sum, value) => sum + value, 0) / levels.length;
  const isNear = pseudo > y.low - span && pseudo < y.high + span;
  const described = data.curves.map(({ name, values: all }) =>
    `${name}: from ${shown(all[0])} to ${shown(all.at(-1))}`);
  let paths = [];
  const highlight = (number) => {
    paths.forEach((path, i) => {
      path.classList.toggle("chosen", i === number);
      path.classList.toggle("faint", number !== null && i !== number);
    });
    nameLine.textContent = number === null ? "Point at a curve, or choose a run, to highlight it." : described[number];
  };
  const chosen = () => (choice.value === "" ? null : Number(choice.value));
  choice.append(element("option", { value: "" }, "no run"),
    ...data.curves.map(({ name }, i) => element("option", { value: i }, name)));
  choice.addEventListener("change", () => highlight(chosen()));
  const groups = [...new Map(data.curves.map((curve) => [curve.group, curve.color]))];
  const others = groups.filter(([, color]) => color === "other").length;
  const key = groups.filter(([, color]) => color !== "other");
  if (others) key.push([`${others} other group${others > 1 ? "s" : ""}`, "other"]);
  document.getElementById("curve-key").append(...key.map(([name, color]) => element("li", {}, dot(color), name)));
  chart(holder, {
    label: `${data.curves_of} over ${data.step}s, a line per run`, xName: data.step, height: 340, wholeX: true,
    x: scale(data.curves.flatMap((curve) => curve.epochs), { margin: 0.01 }),
    y: isNear ? scale([...values, pseudo], { log: log && pseudo > 0 }) : y,
  }, (axes) => {
    if (isNear) {
      svg(axes.picture, "line", { class: "pseudo", x1: EDGE.left, x2: axes.right, y1: axes.y(pseudo), y2: axes.y(pseudo) });
      svg(axes.picture, "text", { class: "note", x: axes.right, y: axes.y(pseudo) - 5, "text-anchor": "end" }, data.pseudo_label);
    }
    paths = data.curves.map((curve, number) => {
      const points = curve.epochs.map((epoch, i) => `${axes.x(epoch).toFixed(1)},${axes.y(curve.values[i]).toFixed(1)}`);
      const end = points.length === 1 ? "h6" : "";
      const path = svg(axes.picture, "path", { class: curve.color === "other" ? "other" : "", d: `M${points.join("L")}${end}`, style: `--color: var(--group-${curve.color})` });
      path.addEventListener("mouseenter", () => highlight(number));
      path.addEventListener("mouseleave", () => highlight(chosen()));
      return path;
    });
    axes.picture.append(...[...paths].reverse()); // the best group on top
    highlight(chosen());
  });
}

function settingCharts({ settings, scores, measure }) {
  for (const setting of settings) {
    const holder = element("div");
    const title = setting.share ? `${setting.key}: importance ${setting.share}` : setting.key;
    document.getElementById("setting-charts").append(element("figure", {}, element("h3", {}, title), holder));
    const label = `${measure} of each run against ${setting.key}`, all = scores.map((run) => run.score);
    const point = (axes, x, y, i) => {
      const made = svg(axes.picture, "circle", { cx: x, cy: y, r: 4.5, style: `--color: var(--group-${scores[i].color})` });
      svg(made, "title", {}, `${scores[i].name}: ${shown(scores[i].score)}`);
    };
    if (setting.names) {
      const rows = setting.names;
      const options = { label, rows, xName: measure, x: scale(all), y: { low: rows.length - 0.7, high: -0.8 },
        height: EDGE.top + EDGE.bottom + 44 * rows.length };
      chart(holder, options, (axes) => all.forEach((score, i) => point(axes, axes.x(score), axes.y(setting.values[i]), i)));
    } else {
      const options = { label, xName: setting.key, x: scale(setting.values, { log: setting.log }), y: scale(all), height: 260 };
      chart(holder, options, (axes) => all.forEach((score, i) => point(axes, axes.x(setting.values[i]), axes.y(score), i)));
    }
  }
}
