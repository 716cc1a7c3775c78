// Example frames: the picture, the true depth, and a slider between two depths with their errors.

const source = (picture) => `data:image/jpeg;base64,${picture}`;

function colorBar(colors, high, unit, percent = false) {
  const at = ticks(0, high, 5);
  const labels = at.map((value, i) => {
    const place = (100 * value) / high, number = percent ? Math.round(100 * value) : value;
    const text = i === at.length - 1 ? `${number}${unit}` : `${number}`;
    return element("span", { class: place > 85 ? "last" : "middle", style: `left: ${place}%` }, text);
  });
  return [element("div", { class: "bar", style: `background: linear-gradient(to right, ${colors.join(", ")})` }),
    element("p", { class: "bar-ticks" }, ...labels)];
}

class Frame {
  constructor(frame, number, data) {
    this.frame = frame;
    this.title = element("h3");
    this.slider = element("input", { type: "range", min: 0, max: 100, value: 50, id: `slider-${number}` });
    this.slider.addEventListener("input", () => this.move());
    this.pairs = ["depth", "error"].map((what) => {
      const [left, right] = [element("img"), element("img")];
      const pair = element("div", { class: "pair" }, left, right);
      return { what, left, right, pair, caption: element("figcaption") };
    });
    const [depth, error] = this.pairs;
    const still = (picture, name, ...below) => element("figure", {},
      element("img", { src: source(picture), alt: `${name} of ${frame.name}` }), ...below,
      element("figcaption", {}, name));
    const depthBar = () => colorBar(data.depth_colors, frame.farthest_m, " m");
    const figure = (pair, bar) => element("figure", { class: "wide" }, pair.pair, ...bar, pair.caption);
    this.node = element("div", { class: "frame" }, this.title,
      element("label", { for: this.slider.id }, "Move the border between left and right"), this.slider,
      element("div", { class: "pictures" }, still(frame.rgb, "RGB"),
        still(frame.truth, "true depth; grey: none", ...depthBar()), figure(depth, depthBar()),
        figure(error, colorBar(data.error_colors, data.worst_error, "%", true))));
  }

  move() {
    for (const { right, pair } of this.pairs) {
      right.style.clipPath = `inset(0 0 0 ${this.slider.value}%)`;
      pair.style.setProperty("--border", `${this.slider.value}%`);
    }
  }

  show(left, right) {
    const depth = (label) => this.frame.depths.find((one) => one.label === label);
    const both = [left, right].map(depth);
    const numbers = both.map((one) => `${one.abs_rel.toFixed(4)} (${one.label})`);
    this.title.textContent = `${this.frame.name}: AbsRel ${numbers.join(", ")}`;
    for (const { what, left: under, right: over, caption } of this.pairs) {
      const name = what === "depth" ? "depth" : "relative error";
      [under, over].forEach((image, i) => {
        image.src = source(both[i][what]);
        image.alt = `${name} of ${both[i].label}, ${this.frame.name}`;
      });
      const grey = what === "error" ? "; grey: no true depth" : "";
      caption.textContent = `${name}; left: ${left}, right: ${right}${grey}`;
    }
    this.move();
  }
}

function exampleFrames(data) {
  document.getElementById("frames-note").textContent = data.frames_note;
  if (!data.frames.length) return;
  const labels = data.frames[0].depths.map((depth) => depth.label);
  const holder = document.getElementById("frames");
  const choice = (side, value) => {
    const made = element("select", { id: `frames-${side}` }, ...labels.map((name) => element("option", {}, name)));
    made.selectedIndex = value;
    return made;
  };
  const [left, right] = [choice("left", 0), choice("right", labels.length > 1 ? 1 : 0)];
  const labelled = (name, select) => element("p", { class: "controls" }, element("label", { for: select.id }, name), select);
  holder.append(labelled("Left", left), labelled("Right", right));
  const frames = data.frames.map((frame, number) => new Frame(frame, number, data));
  holder.append(...frames.map((frame) => frame.node));
  const show = () => frames.forEach((frame) => frame.show(labels[left.selectedIndex], labels[right.selectedIndex]));
  for (const select of [left, right]) select.addEventListener("change", show);
  show();
}
