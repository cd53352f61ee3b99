// The list of topics, and one topic: partitions to scale, settings, readers, producers.
import { h, name } from "../dom.js";
import { go } from "../main.js";
import { count, plural, short, size } from "../format.js";
import { change, changeButton, chip, confirmName, dialog, field, groupLink, heading, logBar, pager, searchBox, stat, table, topicLink, transactionLink, when } from "../parts.js";

export const topics = {
  title: () => "Topics",
  source: ({ query }) => ["topics", query],
  render(document, context) {
    const { query } = context;
    return [
      heading(
        "Topics",
        { beside: chip(count(document.total)) },
        searchBox(context, "Search topics"),
        changeButton("Create topic", { primary: true }, createTopic),
      ),
      h(
        "div",
        { class: "tools" },
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: query.internal === "1", onchange: (event) => context.set({ internal: event.target.checked ? "1" : null, page: null }) }), "internal topics, too"),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: query.trouble === "1", onchange: (event) => context.set({ trouble: event.target.checked ? "1" : null, page: null }) }), "only those in trouble"),
      ),
      h(
        "section",
        { class: "card flush" },
        table(
          [
            { title: "Name", sort: "name", class: "name", cell: (one) => [topicLink(one.name), one.internal && [" ", chip("internal")]] },
            { title: "State", cell: (one) => (one.trouble ? chip(one.trouble, one.trouble.includes("leader") ? "bad" : "warn") : chip("in sync", "good")) },
            { title: "Partitions", sort: "partitions", number: true, cell: (one) => count(one.partitions) },
            { title: "Replicas", number: true, cell: (one) => count(one.replication) },
            { title: "Offsets held", number: true, cell: (one) => count(one.records) },
            { title: "Written a second", sort: "rate", number: true, cell: (one) => short(one.rate) },
            { title: "Size", sort: "size", number: true, cell: (one) => size(one.bytes) },
          ],
          document.topics,
          {
            label: "Topics",
            sort: query.sort || "name",
            onsort: (sort) => context.set({ sort, page: null }),
            empty: query.q ? h("span", null, "No topic has ", name(`“${query.q}”`), " in its name.") : query.trouble ? "No topic is in trouble." : "There is no topic yet: semel topic create NAME makes one.",
          },
        ),
        pager(document, context),
      ),
    ];
  },
};

function createTopic() {
  dialog({
    title: "Create topic",
    submit: "Create",
    body: [
      field("Name", { name: "name", required: true, autocomplete: "off", spellcheck: "false" }),
      field("Partitions", { name: "partitions", type: "number", min: 1 }, "Without a number, as many as the cluster's own default says."),
      field("Replicas", { name: "replication", type: "number", min: 1 }),
      h("label", null, "Settings", h("textarea", { name: "settings", rows: 3, spellcheck: "false", placeholder: "retention.ms=86400000\ncleanup.policy=compact" })),
    ],
    async act(values) {
      const done = await change("create-topic", {
        name: values.name,
        partitions: values.partitions ? Number(values.partitions) : null,
        replication: values.replication ? Number(values.replication) : null,
        settings: settingsIn(values.settings),
      });
      go(`/topics/${encodeURIComponent(values.name)}`);
      return done;
    },
  });
}

function settingsIn(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]));
}

// -- one topic

export function topicHead(topic, tab, ...actions) {
  const base = `/topics/${encodeURIComponent(topic)}`;
  const tabs = [["", "Partitions", base], ["messages", "Messages", `${base}/messages`], ["settings", "Settings", `${base}/settings`], ["readers", "Readers", `${base}/readers`], ["producers", "Producers", `${base}/producers`]];
  return [
    heading(name(topic), { above: h("a", { href: "/topics" }, "Topics") }, ...actions),
    h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, tabs.map(([key, label, href]) => h("a", { href, "aria-current": key === (tab || "") && "page" }, label))),
  ];
}

const TABS = { settings, readers, producers, undefined: partitions };

export const topic = {
  title: ({ name }) => name,
  source: ({ params }) => (params.tab === "producers" ? ["producers", { name: params.name }] : ["topic", { name: params.name }]),
  render(document, context) {
    const { params } = context;
    const actions =
      params.tab === undefined
        ? [
            changeButton("Add partitions", {}, () => addPartitions(document)),
            changeButton("Delete records", { danger: true }, () => trim(document)),
            changeButton("Delete topic", { danger: true }, () => remove(document)),
          ]
        : [];
    return [...topicHead(params.name, params.tab, ...actions), TABS[params.tab](document, context)];
  },
};

function partitions(document) {
  const offsets = document.partitions.reduce((sum, one) => sum + one.end_offset - one.start_offset, 0);
  const readersOf = (number) =>
    document.readers.flatMap((reader) => reader.positions.filter((one) => one.partition === number && one.committed !== null).map((one) => ({ group: reader.group, committed: one.committed })));
  return [
    h(
      "div",
      { class: "stats" },
      stat("State", document.trouble ? h("span", { class: "bad" }, document.trouble) : h("span", { class: "good" }, "in sync")),
      stat("Partitions", count(document.partitions.length), plural(document.replication, "replica") + " each"),
      stat("Offsets held", count(offsets), "markers of transactions included"),
      stat("Written a second", short(document.rate)),
      stat("Size", size(document.bytes), "on all nodes"),
    ),
    h(
      "section",
      { class: "card flush" },
      h(
        "div",
        { class: "cardhead" },
        h("h2", null, "Partitions, to scale"),
        h("span", { class: "hint legend" }, h("span", null, h("span", { class: "swatch held" }), "held back by a transaction"), h("span", null, "▏ where a group stands")),
      ),
      table(
        [
          { title: "Partition", cell: (one) => h("a", { href: `/topics/${encodeURIComponent(document.name)}/messages?partition=${one.partition}` }, one.partition) },
          { title: "Leader", cell: (one) => (one.leader < 0 ? chip("none", "bad") : `node ${one.leader}`) },
          { title: "Replicas", cell: (one) => h("span", { class: "chips" }, one.replicas.map((node) => chip(node, one.in_sync.includes(node) ? (node === one.leader ? "accent" : "good") : "bad"))) },
          { title: "Log", class: "wide", cell: (one) => logBar(one, readersOf(one.partition)) },
          { title: "Start", number: true, cell: (one) => count(one.start_offset) },
          { title: "Stable", number: true, cell: (one) => (one.last_stable_offset < one.end_offset ? h("a", { class: "warn strong", href: `/transactions?partition=${encodeURIComponent(`${document.name}/${one.partition}`)}` }, count(one.last_stable_offset)) : count(one.last_stable_offset)) },
          { title: "End", number: true, cell: (one) => count(one.end_offset) },
        ],
        document.partitions,
        { label: "Partitions" },
      ),
    ),
  ];
}

function settings(document) {
  const rows = Object.values(document.settings);
  rows.sort((one, other) => (one.source === "topic" ? 0 : 1) - (other.source === "topic" ? 0 : 1) || one.name.localeCompare(other.name));
  return h(
    "section",
    { class: "card flush" },
    table(
      [
        { title: "Setting", class: "name", cell: (one) => h("code", null, one.name) },
        { title: "Value", class: "name", cell: (one) => (one.value === null ? chip("hidden") : h("code", null, name(one.value === "" ? "(empty)" : one.value))) },
        { title: "From", cell: (one) => chip(one.source.replaceAll("_", " "), one.source === "topic" && "accent") },
        { title: "", number: true, cell: (one) => changeButton("Change", {}, () => alter(document, one)) },
      ],
      rows,
      { label: "Settings" },
    ),
  );
}

function alter(document, setting) {
  dialog({
    title: `Change ${setting.name}`,
    submit: "Change",
    body: [
      field("Value", { name: "value", value: setting.value ?? "", spellcheck: "false", autocomplete: "off" }),
      setting.source === "topic" && h("label", { class: "check" }, h("input", { type: "checkbox", name: "reset" }), "back to its default"),
    ],
    act: (values) => change("alter-topic", { name: document.name, ...(values.reset ? { reset: [setting.name] } : { set: { [setting.name]: values.value } }) }),
  });
}

function addPartitions(document) {
  const now = document.partitions.length;
  dialog({
    title: `Add partitions to ${document.name}`,
    submit: "Add",
    body: [
      h("p", null, `It has ${plural(now, "partition")}. None can be taken away again, and keys that are written afterwards may go to other partitions than before.`),
      field("Partitions, all together", { name: "partitions", type: "number", min: now + 1, value: now + 1, required: true }),
    ],
    act: (values) => change("alter-topic", { name: document.name, partitions: Number(values.partitions) }),
  });
}

function trim(document) {
  dialog({
    title: `Delete records of ${document.name}`,
    submit: "Delete records",
    danger: true,
    body: [
      h("p", null, "The oldest records of every partition are deleted, for ever. Readers who stand before the new start go on as their auto.offset.reset says."),
      field("Those before", { name: "before", value: "7d", required: true }, "an age (10m, 2h, 7d), a time (2026-11-15T10:00), an offset, or latest for all"),
      confirmName(document.name),
    ],
    act: (values) => change("trim-topic", { name: document.name, before: values.before, confirm: values.confirm }),
  });
}

function remove(document) {
  dialog({
    title: `Delete topic ${document.name}`,
    submit: "Delete topic",
    danger: true,
    body: [h("p", null, `The topic and all of its records are deleted, for ever. ${document.reader_count ? plural(document.reader_count, "group has", "groups have") + " read it." : ""}`), confirmName(document.name)],
    async act(values) {
      const done = await change("delete-topic", { name: document.name, confirm: values.confirm });
      go("/topics");
      return done;
    },
  });
}

function readers(document) {
  return h(
    "section",
    { class: "card flush" },
    table(
      [
        { title: "Group", class: "name", cell: (one) => groupLink(one.group) },
        { title: "Partitions", number: true, cell: (one) => count(one.positions.length) },
        { title: "Lag", number: true, cell: (one) => count(one.lag) },
      ],
      document.readers,
      { label: "Groups that read it", empty: "No group has committed offsets here, as far as was sampled." },
    ),
  );
}

function producers(document) {
  return h(
    "section",
    { class: "card flush" },
    table(
      [
        { title: "Producer", cell: (one) => h("span", { class: "mono" }, `${one.producer_id} · epoch ${one.producer_epoch}`) },
        { title: "Transactional id", class: "name", cell: (one) => (one.transactional_id === null ? h("span", { class: "muted" }, "–") : transactionLink(one.transactional_id)) },
        { title: "Partition", number: true, cell: (one) => one.partition },
        { title: "Last sequence", number: true, cell: (one) => count(one.last_sequence) },
        { title: "Last write", cell: (one) => when(one.last_write_ms) },
        { title: "Transaction", cell: (one) => (one.open_since_offset === null ? h("span", { class: "muted" }, "none open") : chip(`open since ${count(one.open_since_offset)}`, "warn")) },
      ],
      document.producers,
      { label: "Producers", empty: "No idempotent producer is remembered here." },
    ),
  );
}
