// Transactional ids, one row each; transactions as bars between when they began and when their last marker was written.
import { h, name } from "./dom.js";
import { count, duration, fullTime, plural } from "./format.js";
import { transactionLink } from "./parts.js";

const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200];
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function timeline(document) {
  const { now_ms: now, window_ms: span } = document;
  const since = now - span;
  const at = (ms) => Math.min(100, Math.max(0, ((ms - since) / span) * 100));
  const ticks = ticksOf(since, now);
  if (!document.transactions.length) return h("div", { class: "empty" }, "No transactional id is known to the coordinators.");
  return h(
    "div",
    { class: "timeline", role: "list", "aria-label": "Transactions over time" },
    h(
      "div",
      { class: "row axis", "aria-hidden": "true" },
      h("div", { class: "who" }),
      h("div", { class: "track" }, ticks.map((ms) => h("span", { class: "tick", css: { left: `${at(ms)}%` } }, clock.format(ms)))),
      h("div", { class: "now" }),
    ),
    document.transactions.map((one) => row(one, { now, at, ticks })),
  );
}

function row(one, { now, at, ticks }) {
  const past = one.past.length || one.started_ms === null ? one.past : [{ began_ms: one.started_ms, prepared_ms: null, completed_ms: null, end: null, partition_count: one.partitions.length }];
  const isOpen = one.age_ms !== null;
  const holds = one.holds.length > 0;
  return h(
    "div",
    { class: "row", role: "listitem", data: { key: one.transactional_id } },
    h(
      "div",
      { class: "who" },
      transactionLink(one.transactional_id),
      h("span", { class: `detail ${holds ? "warn" : ""}` }, holds ? ["holds back ", name(one.holds.slice(0, 3).join(", "))] : `epoch ${one.producer_epoch}` + (isOpen ? `, ${plural(one.partitions.length, "partition")}` : "")),
    ),
    h("div", { class: "track" }, ticks.map((ms) => h("span", { class: "rule", css: { left: `${at(ms)}%` } })), bars(past, holds, now, at)),
    h("div", { class: `now ${isOpen ? "warn strong" : "muted"}` }, isOpen ? duration(one.age_ms) : one.past_count ? `${count(one.past_count)} ended` : "idle"),
  );
}

function bars(past, holds, now, at) {
  return past.map((one) => {
    const kind = one.end === null ? "open" : one.end === "commit" ? "committed" : "aborted";
    const [left, end] = [at(one.began_ms), at(one.completed_ms ?? now)];
    const width = Math.max(end - left, 0.05);
    const decided = one.prepared_ms === null ? null : at(one.prepared_ms);
    const told = `${kind}: begun ${fullTime(one.began_ms)}, ${duration((one.completed_ms ?? now) - one.began_ms)}, ${plural(one.partition_count, "partition")}`;
    return h(
      "span",
      { class: `bar ${kind} ${kind === "open" && holds ? "holds" : ""}`, title: told, css: { left: `${left}%`, width: `${width}%` } },
      decided !== null && end - decided > 0.3 && h("span", { class: "deciding", css: { width: `${((end - decided) / width) * 100}%` } }),
    );
  });
}

function ticksOf(since, now) {
  const span = (now - since) / 1000;
  const step = (STEPS_S.find((seconds) => span / seconds <= 7) || 14400) * 1000;
  const ticks = [];
  for (let ms = Math.ceil(since / step) * step; ms <= now; ms += step) {
    if (ms - since > (now - since) * 0.03 && now - ms > (now - since) * 0.03) ticks.push(ms);
  }
  return ticks;
}
