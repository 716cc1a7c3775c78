// Fills the page with the data of its last script element. Values of runs are inserted as text.

const data = JSON.parse(document.getElementById("data").textContent);

function remove(id) {
  document.getElementById(id).remove();
}

function fileAddress(path) {
  return `file://${path.split("/").map(encodeURIComponent).join("/")}`;
}

function graph() {
  const picture = document.getElementById("graph");
  picture.append(element("source", { media: "(max-width: 48rem)", srcset: data.graph.narrow }),
    element("img", { src: data.graph.wide, alt: data.graph_text }));
}

function tables() {
  new Table("groups", data.groups, { caption: `Groups, the best first; mean ${data.measure} over seeds`, noun: "group",
    color: (row) => data.colors[row[0]] ?? data.other_color });
  if (data.differences.rows.length) {
    new Table("differences", data.differences, { caption: "Comparisons of two groups", noun: "comparison" });
  } else remove("comparisons");
  if (data.scenes.rows.length) {
    const lowest = (row) => row.indexOf(Math.min(...row.slice(1).filter((value) => value !== null)));
    new Table("scenes", data.scenes, { caption: "AbsRel by scene", noun: "scene", best: lowest });
  } else remove("by-scene");
  const path = data.runs.header.indexOf("path"), group = data.runs.header.indexOf("group");
  const runs = new Table("runs", data.runs, { caption: data.runs_caption, noun: "run",
    color: (row) => data.colors[row[group]] ?? data.other_color,
    link: (row, column) => (column === 0 && row[path] ? fileAddress(row[path]) : null) });
  const field = document.getElementById("filter");
  const filter = () => {
    runs.wanted = field.value.trim().toLowerCase();
    document.getElementById("shown").textContent = `${runs.render()} of ${data.runs.rows.length}`;
  };
  field.addEventListener("input", filter);
  filter();
}

function commands() {
  for (const { what, command } of data.commands) {
    document.getElementById("commands").append(element("li", {}, `${what}: `, element("code", {}, command)));
  }
  if (!data.commands.length) remove("open");
}

function contents() {
  for (const heading of document.querySelectorAll("main h2")) {
    const link = element("a", { href: `#${heading.parentElement.id}` }, heading.textContent);
    document.getElementById("contents").append(element("li", {}, link));
  }
}

for (const name of data.not_written) {
  for (const source of document.querySelectorAll(`[data-file="${name}"]`)) source.remove();
}
for (const line of data.summary) document.getElementById("summary").append(element("li", {}, line));
for (const id of ["facts", "legend", "favour"]) document.getElementById(id).textContent = data[id];
document.getElementById("settings-note").textContent = data.settings_note;
tables();
graph();
learningCurves(data);
if (data.foreign) remove("examples");
else exampleFrames(data);
if (data.settings.length) settingCharts(data);
else remove("settings");
commands();
contents();
