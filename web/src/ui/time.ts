/** Times as people read them. */

import { useEffect, useState } from "preact/hooks";

/** By how much the server's clock is ahead of this one, in milliseconds; nothing where they are about the same. */
let ahead = 0;
/** The server says the time to the second only, and the answer takes its while. */
const SLACK = 2_000;

/** Notes what the server says the time is. */
export function noteClock(date: string | null): void {
  const there = date === null ? NaN : Date.parse(date);
  if (Number.isNaN(there)) return;
  const difference = there + 500 - Date.now();
  if (Math.abs(difference) < SLACK) ahead = 0;
  // Small changes are the way's, and not the clock's.
  else if (Math.abs(difference - ahead) > SLACK) ahead = difference;
}

/** Now, by the clock of the server: times in events are compared with it. */
export function serverNow(): number {
  return Date.now() + ahead;
}

/** A span in milliseconds, in at most six letters. */
export function span(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < 1) return "<1 ms";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How long ago something was. */
export function ago(at: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(at)) / 1_000);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  if (seconds < 86_400 * 30) return `${Math.floor(seconds / 86_400)} d ago`;
  return new Date(at).toISOString().slice(0, 10);
}

/** A moment of the day, to the millisecond. */
export function clock(at: string): string {
  const date = new Date(at);
  const two = (it: number) => String(it).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** A moment, in the reader's own way of writing it. */
export function moment(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** When something starts that is scheduled: `Starts 24 Nov 2026, 04:06:00 (in 23 h)`. */
export function startsText(at: string, now: number): string {
  const left = Date.parse(at) - now;
  return left > 0 ? `Starts ${moment(at)} (in ${coarse(left)})` : `Starts ${moment(at)}`;
}

/** A span in one unit. */
function coarse(milliseconds: number): string {
  const seconds = Math.ceil(milliseconds / 1_000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Now, again and again while it matters. */
export function useNow(every: number, isRunning = true): number {
  const [now, setNow] = useState(serverNow());
  useEffect(() => {
    if (!isRunning) return;
    setNow(serverNow());
    const timer = setInterval(() => document.hidden || setNow(serverNow()), every);
    return () => clearInterval(timer);
  }, [every, isRunning]);
  return now;
}

/** The time that something worked, and after it the time that it waited for a person or a signal. */
export function spentText({ worked, waited }: { worked: number; waited: number }): string {
  if (waited <= 0) return span(worked);
  return worked > 0 ? `${span(worked)}, waited ${span(waited)}` : `waited ${span(waited)}`;
}

/** How long something took, or has taken. */
export function took(from: string | null | undefined, to: string | null | undefined, now: number): string {
  if (!from) return "";
  return span((to ? Date.parse(to) : now) - Date.parse(from));
}
