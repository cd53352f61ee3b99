// Nodes: roles, the quorum, who leads and who lags; and the settings of one.
import { h, name } from "../dom.js";
import { count, duration, plural, size } from "../format.js";
import { chip, heading, placeLink, stat, table } from "../parts.js";

const STATES = { up: "good", active: "good", fenced: "warn", down: "bad" };
const lag = (records) => (records === null ? h("span", { class: "muted" }, "not told") : records ? h("span", { class: "warn strong" }, count(records)) : h("span", { class: "good" }, "0"));

export const nodes = {
  title: () => "Nodes",
  source: () => ["nodes", {}],
  render(document) {
    const { quorum } = document;
    const most = Math.max(1, ...document.nodes.map((node) => node.leads));
    return [
      heading("Nodes"),
      h(
        "div",
        { class: "stats" },
        stat("Nodes up", `${document.nodes.filter((node) => node.state === "up" || node.state === "active").length}/${document.nodes.length}`),
        stat("Controller", document.controller === null ? "–" : `node ${document.controller}`, quorum ? `epoch ${quorum.epoch}` : "this cluster does not tell of its quorum"),
        stat("Metadata", quorum ? count(quorum.high_watermark) : "–", "records committed"),
        stat("Replicas", count(document.replicas), document.under_replicated.length ? h("span", { class: "bad" }, `${plural(document.under_replicated.length, "partition")} in trouble`) : "all in sync"),
      ),
      h(
        "section",
        { class: "card flush" },
        h("h2", null, "Who does what"),
        table(
          [
            { title: "Node", cell: (one) => (one.roles.includes("broker") && one.address ? h("a", { href: `/nodes/${one.id}`, class: "strong" }, `node ${one.id}`) : `node ${one.id}`) },
            { title: "State", cell: (one) => chip(one.state, STATES[one.state]) },
            { title: "Roles", cell: (one) => h("span", { class: "chips" }, one.roles.map((role) => chip(role, role === "controller" && one.id === document.controller && "accent"))) },
            { title: "Address", class: "name", cell: (one) => h("span", { class: "mono" }, one.address === null ? "–" : name(one.address)) },
            { title: "Rack", cell: (one) => (one.rack === null ? "–" : name(one.rack)) },
            { title: "Leads", number: true, cell: (one) => [h("span", { class: "meter" }, h("span", { css: { width: `${(one.leads / most) * 100}%` } })), " ", count(one.leads)] },
            { title: "Follows", number: true, cell: (one) => count(one.follows) },
            { title: "Out of sync", number: true, cell: (one) => (one.out_of_sync ? h("span", { class: "bad strong" }, count(one.out_of_sync)) : "0") },
            { title: "Lacks", number: true, cell: (one) => (one.roles.includes("broker") ? lag(one.lacks) : "–") },
            { title: "On disk", number: true, cell: (one) => (one.disk ? size(one.disk.bytes) : "–") },
            { title: "Free", number: true, cell: (one) => (one.disk ? size(one.disk.free_bytes) : "–") },
          ],
          document.nodes,
          { label: "Nodes" },
        ),
      ),
      quorum && quorumCard(document, quorum),
      document.under_replicated.length > 0 &&
        h(
          "section",
          { class: "card flush" },
          h("h2", null, "Partitions in trouble"),
          table(
            [
              { title: "Partition", class: "name", cell: (one) => placeLink(`${one.topic}/${one.partition}`) },
              { title: "Leader", cell: (one) => (one.leader === null ? chip("none", "bad") : `node ${one.leader}`) },
              { title: "Replicas", cell: (one) => h("span", { class: "chips" }, one.replicas.map((node) => chip(node, one.in_sync.includes(node) ? "good" : "bad"))) },
              { title: "Lack", cell: (one) => Object.entries(one.lacks).map(([node, records]) => h("div", null, `node ${node}: `, lag(records))) },
            ],
            document.under_replicated,
            { label: "Partitions in trouble" },
          ),
        ),
    ];
  },
};

function quorumCard(document, quorum) {
  const rows = [...quorum.voters.map((one) => ({ ...one, role: "voter" })), ...quorum.observers.map((one) => ({ ...one, role: "observer" }))];
  return h(
    "section",
    { class: "card flush" },
    h("div", { class: "cardhead" }, h("h2", null, "The quorum"), h("span", { class: "hint" }, "who has how much of the metadata; a majority of the voters decides")),
    table(
      [
        { title: "Node", cell: (one) => `node ${one.node}` },
        { title: "Part", cell: (one) => (one.node === quorum.leader ? chip("leader", "accent") : chip(one.role)) },
        { title: "Metadata up to", number: true, cell: (one) => count(one.end_offset) },
        { title: "Behind", number: true, cell: (one) => lag(one.lag) },
        { title: "Caught up", number: true, cell: (one) => (one.node === quorum.leader || one.caught_up_ms_ago === null ? "–" : `${duration(one.caught_up_ms_ago)} ago`) },
      ],
      rows,
      { label: "The quorum" },
    ),
  );
}

export const node = {
  title: ({ name }) => `Node ${name}`,
  source: ({ params }) => ["node-settings", { id: params.name }],
  render(document, context) {
    const wanted = (context.query.q || "").toLowerCase();
    const rows = document.settings.filter((one) => one.name.includes(wanted));
    rows.sort((one, other) => (one.source === "default" ? 1 : 0) - (other.source === "default" ? 1 : 0));
    return [
      heading(`Node ${document.node}`, { above: h("a", { href: "/nodes" }, "Nodes") }),
      h(
        "section",
        { class: "card flush" },
        h("h2", null, "Settings"),
        table(
          [
            { title: "Setting", class: "name", cell: (one) => h("code", null, one.name) },
            { title: "Value", class: "name", cell: (one) => (one.is_secret ? chip("secret") : h("code", null, one.value === null || one.value === "" ? "–" : name(one.value))) },
            { title: "From", cell: (one) => chip(one.source.replaceAll("_", " "), one.source !== "default" && "accent") },
          ],
          rows,
          { label: "Settings of the node" },
        ),
      ),
    ];
  },
};
