// Tables that can be sorted and filtered, with columns to choose. Values are inserted as text.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const FEW = 6; // columns that are listed without a click
const LONG_NAME = 14, LONG_TEXT = 30; // characters of cells that may wrap
const HASH = /^[0-9a-f]{32,}$/;

function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return HASH.test(value) ? value.slice(0, 8) : value;
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toFixed(4);
}

function dot(color) {
  return element("span", { class: "dot", style: `--color: var(--group-${color})`, "aria-hidden": "true" });
}

// Empty cells come last in both directions.
function compare(a, b, up) {
  const empty = (value) => value === null || value === undefined || value === "";
  if (empty(a) || empty(b)) return empty(a) - empty(b);
  const [x, y] = [a, b].map((value) => (typeof value === "boolean" ? NaN : Number(value)));
  const texts = Number.isNaN(x) - Number.isNaN(y) || String(a).localeCompare(String(b), "en", { numeric: true });
  const order = Number.isNaN(x) || Number.isNaN(y) ? texts : x - y; // a word such as 0.10 is a number
  return up ? order : -order;
}

class Table {
  // options: caption, noun (of a row), link(value, column), color(row), best(row) -> column index
  constructor(id, data, options) {
    Object.assign(this, { data, options, wanted: "", sorted: null, up: true });
    this.visible = new Set(data.shown);
    this.head = element("tr");
    this.body = element("tbody");
    this.count = element("summary");
    const holder = document.getElementById(id);
    if (data.header.length > data.shown.length) holder.append(this.chooser(id));
    if (data.same.length) holder.append(this.sameInAll());
    holder.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.caption },
      element("table", {}, element("caption", {}, options.caption), element("thead", {}, this.head), this.body)));
    this.render();
  }

  chooser(id) {
    const boxes = this.data.header.slice(1).map((name, i) => {
      const box = element("input", { type: "checkbox", id: `${id}-column-${i}` });
      box.checked = this.visible.has(name);
      box.addEventListener("change", () => {
        this.visible[box.checked ? "add" : "delete"](name);
        this.render();
      });
      return element("label", { for: box.id }, box, " ", name);
    });
    const fields = element("fieldset", {}, element("legend", {}, "Columns to show"), ...boxes);
    return element("details", {}, this.count, fields);
  }

  sameInAll() {
    const { same } = this.data, title = `The same for every ${this.options.noun}`;
    const texts = same.flatMap(([name, value], i) =>
      [i ? ", " : "", element("span", { title: value }, `${name} ${shown(value)}`)]);
    if (same.length <= FEW) return element("p", { class: "quiet same" }, `${title}: `, ...texts, ".");
    return element("details", { class: "same" }, element("summary", {}, `${title}: ${same.length} columns`),
      element("p", { class: "quiet" }, ...texts, "."));
  }

  columns() {
    const { header } = this.data;
    return header.map((_, i) => i).filter((i) => i === 0 || this.visible.has(header[i]));
  }

  rows() {
    const found = this.data.rows.filter((row) =>
      row.some((value) => String(value ?? "").toLowerCase().includes(this.wanted)));
    if (this.sorted !== null) found.sort((a, b) => compare(a[this.sorted], b[this.sorted], this.up));
    return found;
  }

  heading(column) {
    const button = element("button", { type: "button" }, this.data.header[column]);
    const isNumber = this.data.rows.some((row) => typeof row[column] === "number");
    const isLong = this.data.header[column].length > LONG_NAME;
    const names = `${isNumber ? "number" : ""} ${isLong ? "name" : ""}`;
    const cell = element("th", { scope: "col", class: names }, button);
    if (this.sorted === column) cell.setAttribute("aria-sort", this.up ? "ascending" : "descending");
    button.addEventListener("click", () => {
      this.up = this.sorted === column ? !this.up : true;
      this.sorted = column;
      this.render();
      this.head.children[this.columns().indexOf(column)].firstChild.focus();
    });
    return cell;
  }

  cell(row, column) {
    const value = row[column], text = shown(value);
    const isNumber = typeof value === "number";
    const cell = column === 0 ? element("th", { scope: "row", class: text.length > LONG_NAME ? "name" : "" })
      : element("td", { class: isNumber ? "number" : text.length > LONG_TEXT ? "long" : "" });
    if (text !== String(value ?? "") || text.length > LONG_TEXT) cell.title = value;
    cell.dataset.value = value ?? "";
    if (column === 0 && this.options.color) cell.append(dot(this.options.color(row)));
    const address = this.options.link?.(row, column);
    cell.append(address ? element("a", { href: address }, text) : text);
    if (this.options.best?.(row) === column) cell.classList.add("best");
    return cell;
  }

  render() {
    const columns = this.columns(), rows = this.rows();
    this.count.textContent = `Columns: ${columns.length} of ${this.data.header.length}`;
    this.head.replaceChildren(...columns.map((column) => this.heading(column)));
    this.body.replaceChildren(...rows.map((row) =>
      element("tr", {}, ...columns.map((column) => this.cell(row, column)))));
    return rows.length;
  }
}
