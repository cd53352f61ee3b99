// What is wrong and what to do, in one look.
import { lines } from "../charts.js";
import { h, name } from "../dom.js";
import { count, duration, plural, short, size } from "../format.js";
import { card, chip, command, groupLink, heading, placeLink, spark, stat, table, transactionLink } from "../parts.js";

const HEALTH = {
  good: ["✓", "The cluster is healthy", "Every partition has its leader and all its replicas, and nobody is held back."],
  warn: ["!", "The cluster works, and needs attention", "Nothing is lost and nobody is refused; see below what to do."],
  bad: ["✕", "Something is broken", "Reading or writing fails, or will when one more node is lost; see below what to do."],
};

function health(findings) {
  const kind = findings.some((one) => one.severity === "bad") ? "bad" : findings.length ? "warn" : "good";
  const [sign, title, text] = HEALTH[kind];
  return h(
    "section",
    { class: `card health ${kind}-line`, "aria-label": "Health" },
    h("span", { class: "sign", "aria-hidden": "true" }, sign),
    h("div", null, h("h2", { class: "strong", css: { margin: "0" } }, title), h("div", { class: "muted" }, text)),
  );
}

const finding = (one) =>
  h(
    "div",
    { class: "finding" },
    h("span", { class: `dot ${one.severity}` }),
    h("div", { class: "body" }, h("h3", null, name(one.title)), h("p", { class: "muted" }, one.why), h("p", null, one.what_to_do), one.command && command(one.command)),
    h("a", { class: "button", href: one.page }, "Show"),
  );

export const overview = {
  title: () => "Overview",
  source: () => ["overview", {}],
  render(document) {
    const free = document.free_bytes.filter((bytes) => bytes !== null);
    const up = document.nodes.filter((node) => node.state === "up" || node.state === "active").length;
    const features = Object.entries(document.features);
    return [
      heading("Overview"),
      health(document.findings),
      document.findings.length > 0 &&
        h("section", { class: "card flush", "aria-label": "What is wrong" }, document.findings.map(finding)),
      h(
        "div",
        { class: "stats" },
        stat("Records a second", document.rate === null ? "–" : short(document.rate), document.rate_is_partial ? "of the topics sampled last" : "written, all topics"),
        stat("Nodes", `${up}/${document.nodes.length}`, document.controller === null ? "controller not told" : `node ${document.controller} is the controller`, "/nodes"),
        stat("Topics", count(document.topics), plural(document.partitions, "partition"), "/topics"),
        stat("Groups", count(document.groups), "", "/groups"),
        stat("Open transactions", count(document.open_transactions), document.held_count ? `${plural(document.held_count, "partition")} held back` : "none holds anybody back", "/transactions"),
        stat("On disk", size(document.bytes), free.length ? free.length === 1 ? `${size(free[0])} free` : `least free: ${size(Math.min(...free))}` : ""),
      ),
      h(
        "div",
        { class: "grid" },
        card("Records a second", document.rate_series[0].length > 1 ? lines("Throughput", "records a second", document.rate_series) : h("div", { class: "empty" }, "Sampled every few seconds; the line begins in a moment.")),
        h(
          "section",
          { class: "card flush" },
          h("h2", null, "Groups with the most lag"),
          table(
            [
              { title: "Group", class: "name", cell: (one) => groupLink(one.group) },
              { title: "Lately", cell: (one) => spark(one.series) },
              { title: "Lag", number: true, cell: (one) => count(one.lag) },
            ],
            document.slowest_groups,
            { empty: "No group is behind.", label: "Groups with the most lag" },
          ),
        ),
      ),
      h(
        "div",
        { class: "grid" },
        h(
          "section",
          { class: "card flush" },
          h("h2", null, "Held back by transactions"),
          table(
            [
              { title: "Partition", class: "name", cell: (one) => placeLink(one.place) },
              { title: "By", class: "name", cell: ({ transactions: [first] }) => (first.transactional_id === null ? chip("nobody knows it", "bad") : transactionLink(first.transactional_id)) },
              { title: "Open for", number: true, cell: ({ transactions: [first] }) => duration(first.age_ms ?? first.idle_ms) },
              { title: "Waiting", number: true, cell: (one) => count(one.end_offset - one.last_stable_offset) },
            ],
            document.held,
            { empty: "Nothing: readers of committed records get to every end.", label: "Held back by transactions" },
          ),
        ),
        card(
          "The cluster",
          h(
            "dl",
            { class: "facts" },
            h("dt", null, "Id"),
            h("dd", { class: "mono" }, document.cluster_id),
            h("dt", null, "Replicas"),
            h("dd", null, `${count(document.replicas)} of ${plural(document.partitions, "partition")}`),
            document.moving.length > 0 && [h("dt", null, "Moving"), h("dd", null, plural(document.moving.length, "partition"))],
            features.length > 0 && [h("dt", null, "Features"), h("dd", { class: "chips" }, features.map(([feature, level]) => chip(`${feature} ${level}`)))],
          ),
        ),
      ),
    ];
  },
};
