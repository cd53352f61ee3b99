// Pieces that several views are made of.
import { h, name, svg } from "./dom.js";
import { change, Refused, session } from "./api.js";
import { count, fullTime, moment } from "./format.js";

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", null, title), ...children);

export const chip = (text, kind) => h("span", { class: `chip ${kind || ""}` }, text);

export function heading(title, options = {}, ...actions) {
  return h(
    "div",
    { class: "head" },
    h("div", null, options.above && h("div", { class: "crumbs" }, options.above), h("h1", null, title)),
    options.beside,
    h("div", { class: "actions" }, ...actions),
  );
}

export function facts(pairs) {
  const shown = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined);
  return h("dl", { class: "facts" }, shown.map(([label, value]) => [h("dt", null, label), h("dd", null, value)]));
}

export const stat = (label, number, detail, href) =>
  h(
    href ? "a" : "div",
    { class: "stat", href },
    h("span", { class: "label" }, label),
    h("span", { class: "number" }, number),
    detail && h("span", { class: "detail" }, detail),
  );

/** Columns: {title, number, sort, cell(row)}. `rows` may be empty: then `empty` says why. */
export function table(columns, rows, options = {}) {
  if (!rows.length) return h("div", { class: "empty" }, options.empty || "There is nothing here.");
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { "aria-label": options.label },
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((column) =>
            h(
              "th",
              { scope: "col", class: column.number && "num", "aria-sort": column.sort && column.sort === options.sort && "descending" },
              column.sort ? h("button", { type: "button", onclick: () => options.onsort(column.sort) }, column.title) : column.title,
            ),
          ),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            null,
            columns.map((column) => h("td", { class: [column.number && "num", column.class].filter(Boolean).join(" ") || null }, column.cell(row))),
          ),
        ),
      ),
    ),
  );
}

export function pager(document, context) {
  if (document.pages <= 1) return null;
  const to = (page) => context.set({ page });
  return h(
    "div",
    { class: "pager" },
    h("span", null, `${count(document.total)} in all, page ${document.page} of ${count(document.pages)}`),
    h("button", { type: "button", disabled: document.page <= 1, onclick: () => to(document.page - 1) }, "Previous"),
    h("button", { type: "button", disabled: document.page >= document.pages, onclick: () => to(document.page + 1) }, "Next"),
  );
}

let typing = 0;

export const searchBox = (context, label) =>
  h("input", {
    type: "search",
    class: "search",
    placeholder: `${label}  ( / )`,
    "aria-label": label,
    value: context.query.q || "",
    data: { search: "1" },
    oninput: (event) => {
      clearTimeout(typing);
      typing = setTimeout(() => context.set({ q: event.target.value, page: null }), 200);
    },
  });

export const when = (ms) => h("time", { title: fullTime(ms) }, moment(ms));

export function command(text) {
  const whole = text + (text.startsWith("semel ") ? session.command_options : "");
  return h(
    "div",
    { class: "command" },
    h("code", { tabindex: "0" }, whole),
    h(
      "button",
      {
        type: "button",
        "aria-label": "Copy the command",
        onclick: async (event) => {
          const button = event.target;
          await navigator.clipboard.writeText(whole);
          button.textContent = "Copied";
          setTimeout(() => (button.textContent = "Copy"), 1500);
        },
      },
      "Copy",
    ),
  );
}

export const topicLink = (topic, tab) => h("a", { href: `/topics/${encodeURIComponent(topic)}${tab ? "/" + tab : ""}` }, name(topic));
export const groupLink = (group) => h("a", { href: `/groups/${encodeURIComponent(group)}` }, name(group));
export const transactionLink = (id) => h("a", { href: `/transactions/${encodeURIComponent(id)}` }, name(id));

export function placeLink(place) {
  const cut = place.lastIndexOf("/");
  const [topic, partition] = [place.slice(0, cut), place.slice(cut + 1)];
  return h("a", { href: `/topics/${encodeURIComponent(topic)}/messages?partition=${partition}` }, name(place));
}

export function spark(series, width = 110, height = 26) {
  const values = series[1].slice(-60);
  if (values.length < 2) return h("span", { class: "muted" }, "–");
  const most = Math.max(...values, 1);
  const path = values.map((value, index) => {
    const x = (index / (values.length - 1)) * width;
    return `${index ? "L" : "M"}${x.toFixed(1)} ${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`;
  });
  return svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, svg("path", { d: path.join("") }));
}

/** A partition drawn to scale: what readers of committed records get, what is held back, and where groups stand. */
export function logBar(partition, readers = []) {
  const { start_offset: start, last_stable_offset: stable, end_offset: end } = partition;
  const whole = Math.max(end - start, 1);
  const at = (offset) => `${Math.min(100, Math.max(0, ((offset - start) / whole) * 100))}%`;
  const told = `offsets ${count(start)} to ${count(end)}` + (stable < end ? `, held back at ${count(stable)}` : "");
  return h(
    "div",
    { class: "log", role: "img", "aria-label": told, title: told },
    end > start && h("span", { class: "stable", css: { left: "0", width: at(stable) } }),
    stable < end && h("span", { class: "held", css: { left: at(stable), right: "0" } }),
    readers.map((one) =>
      h("span", { class: "reader", title: `${one.group} at ${count(one.committed)}`, css: { left: `calc(${at(one.committed)} - 1px)` } }),
    ),
  );
}

// -- what is told, and asked

export function toast(text) {
  const element = h("div", { class: "toast" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), 7000);
}

/** A dialog with a form. `body(form)` gives its fields, `act(values)` does it and returns a sentence. */
export function dialog({ title, body, submit, danger, act }) {
  const refusal = h("p", { class: "bad", role: "alert" });
  const element = h("dialog", { "aria-label": title });
  const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, submit);
  const form = h(
    "form",
    {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        refusal.textContent = "";
        try {
          const done = await act(Object.fromEntries(new FormData(form)));
          element.close();
          if (done) toast(done);
        } catch (error) {
          if (!(error instanceof Refused)) throw error;
          refusal.textContent = error.message;
        } finally {
          button.disabled = false;
        }
      },
    },
    h("h2", null, title),
    body,
    refusal,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => element.close() }, "Cancel"), button),
  );
  element.append(form);
  element.onclose = () => element.remove();
  document.body.append(element);
  element.showModal();
  return element;
}

export const field = (label, attributes, hint) =>
  h("label", null, label, h("input", attributes), hint && h("span", { class: "hint" }, hint));

/** A button for a change; without the right to change anything there is none. */
export function changeButton(label, options, onclick) {
  if (!session.allows_changes) return null;
  return h("button", { type: "button", class: options.danger ? "danger" : options.primary ? "primary" : null, onclick }, label);
}

export const confirmName = (what) =>
  field(`Type ${what} to confirm`, { name: "confirm", autocomplete: "off", required: true, spellcheck: "false" });

export { change };
