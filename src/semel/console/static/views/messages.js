// Messages of a topic: pages of them by position, key and filter, each with its fate; and the live tail.
import { ask, follow, Refused } from "../api.js";
import { h, name, visible } from "../dom.js";
import { count, plural, size } from "../format.js";
import { chip, when } from "../parts.js";
import { bytes, pretty } from "../payload.js";
import { topicHead } from "./topics.js";

const FATES = { committed: ["committed", "good"], aborted: ["aborted", "bad"], open: ["open", "warn"], ended: ["ended", ""], plain: null };
const MOST_LIVE = 500;

export const messages = {
  title: ({ name }) => `Messages of ${name}`,
  begin(context) {
    const view = new View(context);
    view.begin();
    return () => view.end();
  },
};

class View {
  constructor(context) {
    this.context = context;
    this.query = context.query;
    this.found = [];
    this.page = null;
    this.opened = new Map();
    this.isLive = this.query.live === "1";
    this.isLoading = false;
    this.leftOut = 0;
    this.refusal = null;
  }

  begin() {
    if (this.isLive) this.tail();
    else this.load();
    this.draw();
  }

  end() {
    this.stop?.();
  }

  asked() {
    const { partition, from, filter, key, fate, markers, limit } = this.query;
    return { topic: this.context.params.name, partition, from, filter, key, fate, markers, limit };
  }

  async load(more) {
    this.isLoading = true;
    this.refusal = null;
    this.draw();
    try {
      const page = await ask("messages", { ...this.asked(), ...more });
      this.page = page;
      this.found = more ? [...this.found, ...page.messages] : page.messages;
      this.totals = more ? { records: this.totals.records + page.scanned_records, bytes: this.totals.bytes + page.scanned_bytes } : { records: page.scanned_records, bytes: page.scanned_bytes };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.refusal = error.message;
    }
    this.isLoading = false;
    this.draw();
  }

  tail() {
    this.stop = follow("tail", this.asked(), {
      begin: () => {
        this.context.failed(null);
        this.isFollowing = true;
        this.draw();
      },
      records: (document) => this.take(document),
      failed: (sentence) => this.context.failed(sentence),
    });
  }

  take({ messages, ends, left_out: leftOut }) {
    this.leftOut += leftOut;
    this.found = [...messages.reverse(), ...this.found].slice(0, MOST_LIVE);
    for (const end of ends) {
      for (const one of this.found) {
        if (one.fate === "open" && one.partition === end.partition && one.producer_id === end.producer_id && one.offset < end.offset) {
          one.fate = end.how;
        }
      }
    }
    this.draw();
  }

  // -- drawing

  draw() {
    this.context.draw(
      ...topicHead(this.context.params.name, "messages"),
      this.form(),
      this.refusal && h("p", { class: "bad", role: "alert" }, this.refusal),
      h("section", { class: "card flush messages", "aria-busy": this.isLoading ? "true" : "false" }, this.told(), this.list(), this.more()),
    );
  }

  form() {
    const { query } = this;
    const input = (label, key, attributes) =>
      h("label", { class: `field ${attributes.wide ? "wide" : ""}` }, label, h("input", { name: key, value: query[key] || "", autocomplete: "off", spellcheck: "false", ...attributes, wide: null }));
    return h(
      "form",
      {
        class: "tools",
        onsubmit: (event) => {
          event.preventDefault();
          const values = Object.fromEntries(new FormData(event.target));
          this.context.set({ partition: null, from: null, filter: null, key: null, fate: null, markers: null, ...values, live: null });
        },
      },
      input("From", "from", { placeholder: "latest", list: "positions", title: "earliest, latest, an offset, -100, a time (2026-11-15T10:00) or an age (10m)", size: 14 }),
      h("datalist", { id: "positions" }, ["latest", "earliest", "-100", "10m", "1h", "1d"].map((value) => h("option", { value }))),
      input("Partition", "partition", { placeholder: "all", inputmode: "numeric", pattern: "[0-9]*", size: 5 }),
      input("Key", "key", { placeholder: "exactly", size: 12 }),
      input("Filter", "filter", { placeholder: 'words, key:42, .order.id=7, .amount>10, header:source=app, -test', data: { search: "1" }, wide: true }),
      h("label", { class: "field" }, "Fate", h("select", { name: "fate" }, [["", "any"], ["committed", "committed"], ["aborted", "aborted"], ["open", "open"], ["plain", "no transaction"]].map(([value, text]) => h("option", { value, selected: (query.fate || "") === value }, text)))),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "markers", value: "1", checked: query.markers === "1" }), "markers"),
      h("button", { type: "submit", class: "primary" }, "Read"),
      h("button", { type: "button", "aria-pressed": this.isLive ? "true" : "false", onclick: () => this.context.set({ live: this.isLive ? null : "1", from: null }) }, this.isLive ? "Stop" : "Follow live"),
    );
  }

  told() {
    if (this.isLive) {
      return h("div", { class: "cardhead" }, this.isFollowing ? h("span", { class: "chip good pulse" }, "● live") : chip("connecting"), h("span", { class: "hint" }, plural(this.found.length, "record"), " since this page was opened", this.leftOut > 0 && `; ${count(this.leftOut)} came too fast to show`));
    }
    if (!this.page) return null;
    return h(
      "div",
      { class: "cardhead" },
      h("span", { class: "hint", css: { margin: "0" } }, `${plural(this.found.length, "record")}, ${this.page.direction === "older" ? "the youngest first" : "the oldest first"}; ${count(this.totals.records)} looked at (${size(this.totals.bytes)})`),
      !this.page.is_exhausted && !this.page.messages.length && chip("the search was ended by its bounds: go on below", "warn"),
    );
  }

  list() {
    if (!this.found.length) {
      return h("div", { class: "empty" }, this.isLoading ? "Reading…" : this.isLive ? "Waiting for the next record…" : "No record fits.");
    }
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { "aria-label": "Messages" },
        h("thead", null, h("tr", null, ["Partition · offset", "Time", "Key", "Value", "Fate"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", null, this.found.map((one) => this.row(one))),
      ),
    );
  }

  row(one) {
    const id = `${one.partition}:${one.offset}`;
    const isOpen = this.opened.has(id);
    const toggle = () => this.toggle(one, id);
    if (one.marker) {
      return h("tr", { class: "marker" }, h("td", null, `${one.partition} · ${count(one.offset)}`), h("td", null, when(one.timestamp_ms)), h("td", { colspan: 2 }, `${one.marker} marker of producer ${one.producer_id}, epoch ${one.producer_epoch}`), h("td", null));
    }
    const fate = FATES[one.fate];
    return [
      h(
        "tr",
        {
          class: `message ${one.fate} ${one.visible || this.isLive ? "" : "hidden-yet"} ${isOpen ? "chosen" : ""}`,
          onclick: (event) => {
            if (!event.target.closest("a, button") && !String(getSelection())) toggle();
          },
        },
        h("td", { class: "mono" }, h("button", { type: "button", class: "quiet mono", "aria-expanded": isOpen ? "true" : "false", "aria-label": `Record ${one.offset} of partition ${one.partition}`, onclick: toggle }, `${one.partition} · ${count(one.offset)}`)),
        h("td", { class: "num" }, when(one.timestamp_ms)),
        h("td", { class: "key" }, h("div", { class: "clamp" }, brief(one.key))),
        h("td", { class: "value" }, h("div", { class: "clamp" }, brief(one.value))),
        h("td", null, fate ? chip(...fate) : h("span", { class: "muted" }, "–"), !one.visible && !this.isLive && [" ", h("span", { class: "chip warn", title: "Behind the last stable offset: readers of committed records do not get it yet" }, "waits")]),
      ),
      isOpen && h("tr", { class: "detail" }, h("td", { colspan: 5 }, this.detail(this.opened.get(id)))),
    ];
  }

  async toggle(one, id) {
    if (this.opened.has(id)) {
      this.opened.delete(id);
    } else {
      this.opened.set(id, one);
      const isCut = one.value?.is_cut || one.key?.is_cut;
      if (isCut) {
        ask("message", { topic: one.topic, partition: one.partition, offset: one.offset }).then((whole) => {
          if (this.opened.has(id)) this.opened.set(id, whole);
          this.draw();
        }, () => {});
      }
    }
    this.draw();
  }

  detail(one) {
    return [
      h(
        "div",
        { class: "chips" },
        chip(`partition ${one.partition}`),
        chip(`offset ${count(one.offset)}`),
        one.producer_id !== null && chip(`producer ${one.producer_id}, epoch ${one.producer_epoch}`),
        !one.visible && chip("behind the last stable offset: readers of committed records do not get it yet", "warn"),
      ),
      one.headers.length > 0 && [h("h3", null, "Headers"), h("dl", { class: "facts payload" }, one.headers.map(([header, value]) => [h("dt", { class: "mono" }, name(header)), h("dd", { class: "mono" }, brief(value))]))],
      one.key !== null && [h("h3", null, `Key, ${size(one.key.size)}`), payload(one.key)],
      h("h3", null, one.value === null ? "No value: a tombstone" : `Value, ${size(one.value.size)}`),
      one.value !== null && payload(one.value),
    ];
  }

  more() {
    if (this.isLive || !this.page) return null;
    const cursor = this.page[this.page.direction];
    if (!cursor) return null;
    const direction = this.page.direction;
    return h("div", { class: "pager" }, h("button", { type: "button", disabled: this.isLoading, onclick: () => this.load({ cursor, direction }) }, direction === "older" ? "Older" : "Newer"));
  }
}

function brief(value) {
  if (value === null) return h("span", { class: "muted" }, "null");
  if (value.size === 0) return h("span", { class: "muted" }, "empty");
  return value.text === undefined ? h("span", { class: "muted" }, "0x" + value.hex.slice(0, 64)) : h("bdi", null, visible(value.text.slice(0, 600)));
}

function payload(value) {
  const parts = [value.text === undefined ? bytes(value) : pretty(value)];
  if (value.is_cut) parts.push(h("p", { class: "hint" }, `The first part of ${size(value.size)} is shown.`));
  if (value.text !== undefined && value.size) {
    parts.push(h("details", null, h("summary", { class: "hint" }, "as bytes"), bytes({ hex: toHex(value.text), size: value.size })));
  }
  return parts;
}

function toHex(text) {
  return [...new TextEncoder().encode(text.slice(0, 4096))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

