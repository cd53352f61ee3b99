// How amounts and times are written, as the command line writes them.

const whole = new Intl.NumberFormat("en-US");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

export const count = (number) => (number === null || number === undefined ? "–" : whole.format(Math.round(number)));

export function plural(number, noun, many) {
  return `${count(number)} ${number === 1 ? noun : many || noun + "s"}`;
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (number >= size) return (number / (unit === "k" ? 1e3 : size)).toFixed(number >= size * 10 ? 0 : 1) + " " + unit;
  }
  return number >= 10 || Number.isInteger(number) ? count(number) : number.toFixed(1);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit && bytes < 10 ? bytes.toFixed(1) : bytes.toFixed(0)} ${units[unit]}`;
}

const LONG = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  for (const [large, largeS, small, smallS] of LONG) {
    if (seconds >= largeS) {
      const rest = Math.floor((seconds % largeS) / smallS);
      return `${Math.floor(seconds / largeS)} ${large}` + (rest ? ` ${rest} ${small}` : "");
    }
  }
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`;
}

export const time = (ms) => (ms === null || ms === undefined || ms < 0 ? "–" : clock.format(ms));

export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const today = day.format(Date.now()) === day.format(ms);
  return (today ? "" : day.format(ms) + " ") + clock.format(ms) + "." + String(ms % 1000).padStart(3, "0");
}

export const fullTime = (ms) => (ms === null || ms === undefined || ms < 0 ? "no time" : new Date(ms).toISOString());
