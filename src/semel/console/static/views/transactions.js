// Who holds what back and how to end it; every transactional id on a timeline; one of them.
import { h, name } from "../dom.js";
import { count, duration, plural, time } from "../format.js";
import { change, changeButton, chip, command, dialog, facts, groupLink, heading, pager, placeLink, searchBox, stat, table, transactionLink, when } from "../parts.js";
import { timeline } from "../timeline.js";

const STATES = { Ongoing: "warn", PrepareCommit: "accent", PrepareAbort: "accent", PrepareEpochFence: "accent", CompleteCommit: "good", CompleteAbort: "bad" };
const TOLD = { Ongoing: "open", PrepareCommit: "committing", PrepareAbort: "aborting", PrepareEpochFence: "being fenced", CompleteCommit: "committed", CompleteAbort: "aborted", Empty: "nothing yet", Dead: "expired" };
export const stateChip = (state) => chip(TOLD[state] || state, STATES[state]);

const WINDOWS = [[60, "1 min"], [600, "10 min"], [3600, "1 h"], [21600, "6 h"]];

export const transactions = {
  title: () => "Transactions",
  source: ({ query }) => ["transactions", { q: query.q, page: query.page, window: query.window }],
  render(document, context) {
    const wanted = context.query.partition;
    const held = wanted ? document.held.filter((one) => one.place === wanted) : document.held;
    return [
      heading("Transactions", { beside: chip(`${document.open} open`, document.open ? "warn" : "") }, searchBox(context, "Search transactional ids")),
      wanted && h("p", null, "Only ", name(wanted), " is shown. ", h("a", { href: "/transactions" }, "Show all")),
      held.length
        ? held.map((one) => heldCard(one))
        : h("section", { class: "card health" }, h("span", { class: "sign", "aria-hidden": "true" }, "✓"), h("div", null, h("h2", { css: { margin: "0" } }, "Nobody is held back"), h("div", { class: "muted" }, "Readers of committed records get to the end of every partition that was looked at."))),
      h(
        "section",
        { class: "card flush" },
        h(
          "div",
          { class: "cardhead" },
          h("h2", null, "Timeline"),
          h("span", { class: "legend" }, [["open", "open"], ["committed", "committed"], ["aborted", "aborted"], ["held", "open, and holds readers back"]].map(([kind, text]) => h("span", null, h("span", { class: `swatch ${kind}` }), text))),
          h(
            "span",
            { class: "hint" },
            h("select", { "aria-label": "How far back", onchange: (event) => context.set({ window: event.target.value }) }, WINDOWS.map(([seconds, text]) => h("option", { value: seconds, selected: document.window_ms === seconds * 1000 }, `last ${text}`))),
          ),
        ),
        document.history_problem && h("p", { class: "hint", css: { padding: "0 1.15rem" } }, "Only what is open is shown: the log of the coordinators cannot be read (", document.history_problem, ")."),
        timeline(document),
        pager(document, context),
      ),
    ];
  },
};

function heldCard(one) {
  const [first, ...younger] = one.transactions;
  const waiting = one.end_offset - one.last_stable_offset;
  return h(
    "section",
    { class: `card held-card ${first.hangs ? "endless" : ""}`, data: { key: one.place } },
    h(
      "div",
      { class: "head" },
      h("h2", { css: { margin: "0" } }, placeLink(one.place), " stops at offset ", count(one.last_stable_offset)),
      chip(`${plural(waiting, "offset")} wait behind it`, "warn"),
      h("div", { class: "actions" }, endButton(one, first)),
    ),
    facts([
      ["Held by", first.transactional_id === null ? chip("a transaction that no coordinator knows", "bad") : h("span", null, transactionLink(first.transactional_id), " ", stateChip(first.state))],
      ["Producer", h("span", { class: "mono" }, `id ${first.producer_id}, epoch ${first.producer_epoch}`)],
      ["Open since", h("span", null, `offset ${count(first.start_offset)}`, first.started_ms !== null && [", ", when(first.started_ms), h("span", { class: "strong" }, ` (${duration(first.age_ms)})`)])],
      ["Last write", first.idle_ms !== null && h("span", null, when(first.last_write_ms), ` (${duration(first.idle_ms)} ago)`)],
      ["Client", name(first.client_text)],
      ["Ends by itself", name(first.prospect)],
      one.waiting_groups.length > 0 && ["Groups here", h("span", { class: "chips" }, one.waiting_groups.map((each) => h("span", null, groupLink(each.group), " ", each.is_at_end ? chip("waits", "warn") : chip("not there yet"))))],
      younger.length > 0 && ["Behind it", h("span", null, plural(younger.length, "younger transaction"), ": ", younger.slice(0, 5).map((each, index) => [index ? ", " : null, each.transactional_id === null ? `producer ${each.producer_id}` : transactionLink(each.transactional_id)]))],
      ["To end it", first.command ? command(first.command) : "nothing is to be done: its coordinator has decided, and writes the markers"],
    ]),
  );
}

function endButton(one, first) {
  if (!first.command) return null;
  return changeButton("End this transaction…", { danger: true }, () => end(one, first));
}

function end(one, first) {
  const verb = first.hangs && first.may_be_committed ? "commit" : "abort";
  const who = first.transactional_id === null ? `producer ${first.producer_id}` : first.transactional_id;
  dialog({
    title: verb === "commit" ? `Commit what hangs of ${who}` : `Abort the transaction of ${who}`,
    submit: verb === "commit" ? "Commit it" : "Abort it",
    danger: true,
    body: [
      h(
        "ul",
        null,
        verb === "commit"
          ? h("li", null, "Its coordinator has committed it; the marker of this partition is missing, and is written now.")
          : h("li", null, `Its records in ${one.place} since offset ${count(first.start_offset)}, and in all its other partitions, are never shown to readers of committed records.`),
        !first.hangs && h("li", null, "Its producer is fenced: it is told so at its next call, and has to start anew. If it still works on something, that work is to be done again."),
        h("li", null, `Readers of committed records go on behind it: up to ${plural(one.end_offset - one.last_stable_offset, "offset")}.`),
        h("li", null, "If another transaction has begun under this id by now, nothing is done."),
      ),
    ],
    act: () =>
      first.hangs
        ? change("end-hanging", { place: one.place, producer_id: first.producer_id, how: verb })
        : change("end-transaction", { transactional_id: first.transactional_id, producer_id: first.producer_id, started_ms: first.started_ms }),
  });
}

export const transaction = {
  title: ({ name }) => name,
  source: ({ params }) => ["transaction", { name: params.name }],
  render(document) {
    const past = [...document.past].reverse();
    return [
      heading(name(document.transactional_id), { above: h("a", { href: "/transactions" }, "Transactions"), beside: stateChip(document.state) }),
      h(
        "div",
        { class: "stats" },
        stat("State", TOLD[document.state] || document.state, document.started_ms !== null ? `since ${time(document.started_ms)}` : ""),
        stat("Open for", document.age_ms === null ? "–" : duration(document.age_ms), `times out after ${duration(document.timeout_ms)}`),
        stat("Producer", h("span", { class: "mono", css: { "font-size": "1rem" } }, `${document.producer_id} · ${document.producer_epoch}`), "id · epoch"),
        stat("Coordinator", `node ${document.coordinator}`),
      ),
      document.held.map((one) => heldCard(one)),
      document.partitions.length > 0 && h("section", { class: "card" }, h("h2", null, "Partitions of the transaction"), h("div", { class: "chips" }, document.partitions.slice(0, 100).map((place) => h("span", { class: "chip" }, placeLink(place))))),
      h(
        "section",
        { class: "card flush" },
        h("h2", null, "What it has done"),
        table(
          [
            { title: "Begun", cell: (one) => when(one.began_ms) },
            { title: "End decided", cell: (one) => when(one.prepared_ms) },
            { title: "Completed", cell: (one) => when(one.completed_ms) },
            { title: "End", cell: (one) => (one.end === null ? chip("open", "warn") : one.end === "commit" ? chip("committed", "good") : chip("aborted", "bad")) },
            { title: "Took", number: true, cell: (one) => duration((one.completed_ms ?? document.now_ms) - one.began_ms) },
            { title: "Epoch", number: true, cell: (one) => one.producer_epoch },
            { title: "Partitions", class: "name", cell: (one) => name(one.partitions.slice(0, 6).join(", ") + (one.partition_count > 6 ? ` and ${one.partition_count - 6} more` : "")) },
          ],
          past,
          { label: "Transactions under this id", empty: document.history_problem || "Nothing is left of it in the log of its coordinator." },
        ),
      ),
    ];
  },
};
