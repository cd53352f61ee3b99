// The list of groups, and one group: members, lag by partition and over time, reset with a preview.
import { ask, Refused } from "../api.js";
import { lines } from "../charts.js";
import { h, name } from "../dom.js";
import { go } from "../main.js";
import { count, plural } from "../format.js";
import { card, change, changeButton, chip, confirmName, dialog, field, groupLink, heading, pager, placeLink, searchBox, spark, stat, table, topicLink, transactionLink } from "../parts.js";

const STATES = { Stable: "good", Empty: "", Dead: "bad", PreparingRebalance: "warn", CompletingRebalance: "warn", Assigning: "warn", Reconciling: "warn" };
const stateChip = (state) => chip(state || "not told", STATES[state]);

export const groups = {
  title: () => "Groups",
  source: ({ query }) => ["groups", query],
  render(document, context) {
    const { query } = context;
    return [
      heading("Groups", { beside: chip(count(document.total)) }, searchBox(context, "Search groups")),
      h(
        "section",
        { class: "card flush" },
        table(
          [
            { title: "Group", sort: "name", class: "name", cell: (one) => groupLink(one.group) },
            { title: "State", sort: "state", cell: (one) => stateChip(one.state) },
            { title: "Protocol", cell: (one) => one.kind || "–" },
            { title: "Topics", class: "name", cell: (one) => h("span", { class: "chips" }, one.topics.slice(0, 4).map((topic) => topicLink(topic)), one.topics.length > 4 && h("span", { class: "muted" }, `and ${one.topics.length - 4} more`)) },
            { title: "Lately", cell: (one) => spark(one.series) },
            { title: "Lag", sort: "lag", number: true, cell: (one) => count(one.lag) },
          ],
          document.groups,
          { label: "Groups", sort: query.sort || "lag", onsort: (sort) => context.set({ sort, page: null }), empty: query.q ? "No group has that in its name." : "No group has committed anything yet." },
        ),
        pager(document, context),
      ),
    ];
  },
};

export const group = {
  title: ({ name }) => name,
  source: ({ params }) => ["group", { name: params.name }],
  render(document) {
    const heldBack = document.partitions.filter((one) => one.held_at !== null);
    return [
      heading(
        name(document.group),
        { above: h("a", { href: "/groups" }, "Groups"), beside: stateChip(document.state) },
        h("button", { type: "button", onclick: () => preview(document) }, "Reset offsets…"),
        changeButton("Delete group", { danger: true }, () => remove(document)),
      ),
      h(
        "div",
        { class: "stats" },
        stat("Lag", count(document.lag), plural(document.partitions.length, "partition")),
        stat("Members", count(document.members.length), document.members.length ? "" : "nobody reads now"),
        stat("Protocol", document.kind || "–", document.assignor || ""),
        stat("Coordinator", h("span", { class: "mono", css: { "font-size": "1rem" } }, document.coordinator || "–")),
      ),
      heldBack.length > 0 &&
        h(
          "section",
          { class: "card held-card" },
          h("h2", { css: { margin: "0" } }, `${plural(heldBack.length, "partition")} of this group held back by a transaction`),
          h("div", null, "If it reads committed records only, it does not get past the offset where the oldest open transaction began. ", h("a", { href: "/transactions" }, "See who, and how to end it")),
        ),
      card("Lag over time", document.series[0].length > 1 ? lines("Lag", "records", document.series) : h("div", { class: "empty" }, "Sampled every few seconds; the line begins in a moment.")),
      h(
        "section",
        { class: "card flush" },
        h("h2", null, "Partitions"),
        table(
          [
            { title: "Partition", class: "name", cell: (one) => placeLink(`${one.topic}/${one.partition}`) },
            { title: "Member", class: "name", cell: (one) => memberName(document, one.member_id) },
            { title: "Committed", number: true, cell: (one) => count(one.committed) },
            { title: "End", number: true, cell: (one) => count(one.end_offset) },
            { title: "Progress", cell: meter },
            { title: "Lag", number: true, cell: (one) => (one.held_at !== null ? h("span", { class: "warn strong", title: `held back at offset ${one.held_at}` }, count(one.lag)) : count(one.lag)) },
            { title: "", cell: (one) => one.held_at !== null && h("span", null, chip("held back", "warn"), one.held_by !== null && [" ", transactionLink(one.held_by)]) },
          ],
          document.partitions,
          { label: "Partitions of the group", empty: "It has committed nothing." },
        ),
      ),
      h(
        "section",
        { class: "card flush" },
        h("h2", null, "Members"),
        table(
          [
            { title: "Client", class: "name", cell: (one) => name(one.client_id) },
            { title: "Host", cell: (one) => name(one.host) },
            { title: "Member", class: "name mono", cell: (one) => name(one.instance_id ? `${one.instance_id} (static)` : one.member_id) },
            { title: "Reads", class: "name", cell: (one) => (one.partitions.length ? name(one.partitions.slice(0, 12).join(", ") + (one.partitions.length > 12 ? ` and ${one.partitions.length - 12} more` : "")) : h("span", { class: "muted" }, "nothing")) },
          ],
          document.members,
          { label: "Members", empty: "Nobody is in this group now." },
        ),
      ),
    ];
  },
};

function memberName(document, id) {
  const member = document.members.find((one) => one.member_id === id);
  return member ? name(member.client_id) : h("span", { class: "muted" }, "–");
}

function meter(one) {
  if (one.committed === null || one.end_offset === null) return "–";
  const whole = Math.max(one.end_offset - one.start_offset, 1);
  const share = Math.min(1, Math.max(0, (one.committed - one.start_offset) / whole));
  const text = `${Math.floor(share * 100)} %`;
  return h("span", { class: "meter", role: "img", "aria-label": `${text} read`, title: `${text} read` }, h("span", { class: one.held_at !== null && "warn", css: { width: `${share * 100}%` } }));
}

function remove(document) {
  dialog({
    title: `Delete group ${document.group}`,
    submit: "Delete group",
    danger: true,
    body: [h("p", null, "All its offsets are forgotten: who reads in it next begins as auto.offset.reset says."), confirmName(document.group)],
    async act(values) {
      const done = await change("delete-group", { name: document.group, confirm: values.confirm });
      go("/groups");
      return done;
    },
  });
}

function preview(document) {
  const topics = [...new Set(document.partitions.map((one) => one.topic))];
  const shown = h("div", null);
  let plan = null;
  const opened = dialog({
    title: `Reset ${document.group}`,
    submit: "Preview",
    body: [
      h("label", null, "Topic", h("select", { name: "topic", onchange: clear }, h("option", { value: "" }, "all that it has read"), topics.map((topic) => h("option", { value: topic }, name(topic).textContent)))),
      field("To", { name: "to", value: "earliest", required: true, list: "places", oninput: clear, autocomplete: "off" }, "earliest, latest, an offset, -N (N before the end), a time (2026-11-15T10:00) or an age (10m, 2h, 1d)"),
      shown,
    ],
    act: (values) => (plan === null ? look(values) : execute()),
  });
  const button = opened.querySelector("button[type=submit]");

  function clear() {
    plan = null;
    button.textContent = "Preview";
    button.className = "primary";
    shown.replaceChildren();
  }

  async function look(values) {
    const found = await ask("reset-plan", { name: document.group, ...values });
    const moves = found.moves.filter((one) => one.new !== one.committed);
    shown.replaceChildren(
      table(
        [
          { title: "Partition", class: "name", cell: (one) => name(`${one.topic}/${one.partition}`) },
          { title: "Now", number: true, cell: (one) => count(one.committed) },
          { title: "Then", number: true, cell: (one) => count(one.new) },
          { title: "", number: true, cell: (one) => change_text(one) },
        ],
        moves,
        { label: "What it would do", empty: "Nothing would change." },
      ),
    );
    if (found.refused) throw new Refused(found.refused);
    if (moves.length && !button.dataset.shows) {
      plan = moves;
      button.textContent = "Reset";
      button.className = "danger";
    }
    throw new Refused("");
  }

  function execute() {
    return change("reset-group", { name: document.group, moves: plan });
  }
}

function change_text(one) {
  if (one.committed === null) return "new";
  const by = one.new - one.committed;
  return by < 0 ? `${count(-by)} again` : `${count(by)} skipped`;
}

