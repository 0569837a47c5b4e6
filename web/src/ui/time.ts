/** Formats times and durations. */

import { useEffect, useState } from "preact/hooks";

/** Milliseconds by which the server's clock is ahead of this one. Zero if the difference is small. */
let ahead = 0;
/**
 * Differences below this are ignored, in milliseconds. The server's time has a precision of one second, and the answer
 * takes some time.
 */
const IGNORED_DIFFERENCE = 2_000;

/** Compares the server's time with this clock. */
export function noteClock(date: string | null): void {
  const there = date === null ? NaN : Date.parse(date);
  if (Number.isNaN(there)) return;
  const difference = there + 500 - Date.now();
  if (Math.abs(difference) < IGNORED_DIFFERENCE) ahead = 0;
  // A small change comes from the network, not from a clock.
  else if (Math.abs(difference - ahead) > IGNORED_DIFFERENCE) ahead = difference;
}

/** Returns the present time by the server's clock, for comparisons with the times of events. */
export function serverNow(): number {
  return Date.now() + ahead;
}

/** Formats a duration in one or two units. */
export function formatDuration(milliseconds: number): string {
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

/** Formats how long ago a time was. */
export function formatAge(at: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(at)) / 1_000);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  if (seconds < 86_400 * 30) return `${Math.floor(seconds / 86_400)} d ago`;
  return new Date(at).toISOString().slice(0, 10);
}

/** Formats the time of day with milliseconds. */
export function formatClockTime(at: string): string {
  const date = new Date(at);
  const two = (it: number) => String(it).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** Formats a date and a time in the user's language. */
export function formatDateTime(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** Formats the start of a scheduled execution: `Starts 24 Nov 2026, 04:06:00 (in 23 h)`. */
export function startsText(at: string, now: number): string {
  const left = Date.parse(at) - now;
  return left > 0 ? `Starts ${formatDateTime(at)} (in ${oneUnitSpan(left)})` : `Starts ${formatDateTime(at)}`;
}

/** Formats a duration in one unit. */
export function oneUnitSpan(milliseconds: number): string {
  const seconds = Math.ceil(milliseconds / 1_000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Returns the present time, and updates it while `isRunning` is true. */
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

/** Formats the durations of work and of waiting. */
export function spentText({ worked, waited }: { worked: number; waited: number }): string {
  if (waited <= 0) return formatDuration(worked);
  return worked > 0 ? `${formatDuration(worked)}, waited ${formatDuration(waited)}` : `waited ${formatDuration(waited)}`;
}

/** Formats the duration between two times. Without an end, it lasts until now. */
export function elapsedText(from: string | null | undefined, to: string | null | undefined, now: number): string {
  if (!from) return "";
  return formatDuration((to ? Date.parse(to) : now) - Date.parse(from));
}
