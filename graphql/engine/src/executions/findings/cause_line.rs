//! Finds the line with the cause in an error message, such as a trace of Python or Java.

const MAX_CAUSE_BYTES: usize = 600;

/// Returns the line of a message that names the cause. Programs print the cause at different places
/// of a trace: Python last, Node.js and Java first, and Rust below `Caused by:`.
pub fn find_cause_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim_end).collect();
    let lines: Vec<&str> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
    let found = match lines.as_slice() {
        [] => "",
        [only] => only.trim(),
        lines => find_innermost_cause(lines)
            .or_else(|| lines.iter().rev().find_map(|line| strip_error_prefix(line)))
            .or_else(|| {
                lines.iter().rev().find(|line| !is_frame(line)).map(|line| strip_exit_status(line))
            })
            .unwrap_or_else(|| lines[0].trim()),
    };
    clip_cause(&name_program_by_file(found))
}

/// Removes the folders of a program that failed, because lists are too narrow for them and the cause:
/// `` `/srv/tools/charge` exited with status 1: card declined ``.
fn name_program_by_file(line: &str) -> String {
    let shortened = line.strip_prefix('`').and_then(|rest| {
        let (program, end) = rest.split_once("` ")?;
        let (_, file) = program.rsplit_once('/')?;
        let has_ended = end.starts_with("exited with ") || end.starts_with("was ended by ");
        (has_ended && !file.is_empty()).then(|| format!("`{file}` {end}"))
    });
    shortened.unwrap_or_else(|| line.to_owned())
}

/// Returns the last cause of a chain of causes. Rust numbers the causes and prints them below the
/// heading `Caused by:`.
fn find_innermost_cause<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let index = lines.iter().rposition(|line| line.trim_start().starts_with("Caused by:"))?;
    let rest = lines[index].trim_start().trim_start_matches("Caused by:").trim();
    if !rest.is_empty() {
        return Some(rest);
    }
    let below =
        lines[index + 1..].iter().take_while(|line| is_indented(line) && !is_frame_word(line));
    below.last().map(|line| strip_line_number(line.trim()))
}

/// Returns the line without the prefix `Error:` if it names an error. Returns `None` for any other
/// line.
fn strip_error_prefix(line: &str) -> Option<&str> {
    let text = strip_uncaught(strip_quoted_program(line.trim_end()));
    if let Some(rest) = text.strip_prefix("Error:").or_else(|| text.strip_prefix("error:")) {
        return Some(rest.trim()).filter(|rest| !rest.is_empty());
    }
    let (name, rest) = text.split_once(": ")?;
    let is_name = |letter: char| letter.is_alphanumeric() || "._$".contains(letter);
    let is_error = name.ends_with("Error") || name.ends_with("Exception");
    (is_error && name.chars().all(is_name) && !rest.trim().is_empty()).then_some(text)
}

/// Removes the words that Faber puts before the first line of a command's standard error:
/// `` `export` exited with status 1: ``.
fn strip_quoted_program(line: &str) -> &str {
    match line.strip_prefix('`').and_then(|rest| rest.split_once("` ")) {
        Some((_, rest)) => rest.split_once(": ").map_or(line, |(_, cause)| cause),
        None => line,
    }
}

/// Removes the words that .NET, PHP and Deno put before the name of an uncaught error.
fn strip_uncaught(text: &str) -> &str {
    let starts = [
        "Unhandled exception. ",
        "PHP Fatal error:  Uncaught ",
        "Fatal error: Uncaught ",
        "error: Uncaught (in promise) ",
        "error: Uncaught ",
    ];
    starts.iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text)
}

/// Removes `` `export` exited with status 1: ``, because it is not the cause.
fn strip_exit_status(line: &str) -> &str {
    let line = line.trim();
    let rest = strip_quoted_program(line);
    if line[..line.len() - rest.len()].contains("` exited with ") { rest } else { line }
}

fn is_indented(line: &str) -> bool {
    line.starts_with([' ', '\t'])
}

fn is_frame(line: &str) -> bool {
    is_indented(line) || is_frame_word(line)
}

fn is_frame_word(line: &str) -> bool {
    let line = line.trim_start();
    let is_more = line.starts_with("... ") && line.ends_with(" more");
    is_more
        || line.starts_with("at ")
        || line.starts_with("File \"")
        || line.starts_with("stack backtrace:")
        || line.starts_with("Stack backtrace:")
        || line.starts_with("note: ")
        || line.starts_with("Node.js v")
        || line.starts_with("goroutine ")
        || line.starts_with("exit status ")
        || line.starts_with("created by ")
        || line.starts_with("Stack trace:")
        || is_go_call(line)
        || line.chars().all(|letter| "^~- ".contains(letter))
}

/// Returns whether a line is a frame of Go, such as `main.main()` or
/// `net/http.(*conn).serve(0xc0)`.
fn is_go_call(line: &str) -> bool {
    let name = line.split_once('(').map_or("", |(name, _)| name);
    line.ends_with(')') && name.contains('.') && !name.contains([' ', ':'])
}

fn strip_line_number(line: &str) -> &str {
    match line.split_once(": ") {
        Some((number, rest)) if number.chars().all(|digit| digit.is_ascii_digit()) => rest.trim(),
        _ => line,
    }
}

fn clip_cause(text: &str) -> String {
    if text.len() <= MAX_CAUSE_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_CAUSE_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_in_every_kind_of_trace() {
        let python = "`export` exited with status 1: Traceback (most recent call last):\n  File \
                      \"export.py\", line 3, in <module>\n    main()\n    ~~~~^^\nValueError: \
                      unknown VAT code\n";
        let node = "`pay` exited with status 1: /app/pay.js:2\n    throw new Error('card \
                    declined');\n    ^\n\nError: card declined\n    at main (/app/pay.js:2:9)\n\n\
                    Node.js v20.1.0\n";
        let java = "Exception in thread \"main\" java.lang.RuntimeException: no export\n\tat \
                    a.Main.run(Main.java:3)\nCaused by: java.io.IOException: disk full\n\tat \
                    a.Disk.write(Disk.java:9)\n\t... 3 more\n";
        let anyhow = "Error: cannot export\n\nCaused by:\n    0: cannot write\n    1: disk full\n\n\
                      Stack backtrace:\n   0: std::backtrace\n";
        let single = "Error: cannot export\n\nCaused by:\n    disk full";
        let chained = "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'a'\n\
                       \nDuring handling of the above exception, another exception occurred:\n\n\
                       Traceback (most recent call last):\n  File \"a.py\", line 2\nshop.VatError: \
                       unknown code\n";
        let panic = "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds\nnote: run with \
                     `RUST_BACKTRACE=1` environment variable to display a backtrace";
        let go = "`export` exited with status 2: panic: unknown VAT code\n\ngoroutine 1 \
                  [running]:\nmain.rate(...)\n\t/srv/main.go:8\nmain.main()\n\t/srv/main.go:12 \
                  +0x2c\nexit status 2";
        let dotnet = "`export` exited with status 134: Unhandled exception. \
                      System.ArgumentException: unknown VAT code\n   at Shop.Vat.Rate(String code)\n";
        let php = "PHP Fatal error:  Uncaught Exception: unknown VAT code in /srv/e.php:4\nStack \
                   trace:\n#0 /srv/e.php(9): rate()\n#1 {main}\n  thrown in /srv/e.php on line 4";
        let deno = "error: Uncaught (in promise) TypeError: unknown VAT code\n    throw new \
                    TypeError(code);\n          ^\n    at rate (file:///srv/e.ts:1:7)";
        let ruby = "`export` exited with status 1: /srv/e.rb:5:in 'rate': unknown VAT code \
                    (ArgumentError)\n\tfrom /srv/e.rb:9:in 'export'";
        let shell = "copying\ncp: cannot stat 'x': No such file or directory";
        for (message, expected) in [
            ("", ""),
            ("declined", "declined"),
            ("  declined\n", "declined"),
            (python, "ValueError: unknown VAT code"),
            (node, "card declined"),
            (java, "java.io.IOException: disk full"),
            (anyhow, "disk full"),
            (single, "disk full"),
            (chained, "shop.VatError: unknown code"),
            (panic, "index out of bounds"),
            (go, "panic: unknown VAT code"),
            (dotnet, "System.ArgumentException: unknown VAT code"),
            (php, "Exception: unknown VAT code in /srv/e.php:4"),
            (deno, "TypeError: unknown VAT code"),
            (ruby, "/srv/e.rb:5:in 'rate': unknown VAT code (ArgumentError)"),
            (shell, "cp: cannot stat 'x': No such file or directory"),
            ("`x` exited with status 2: Error: no file\nusage: x FILE", "no file"),
            ("  at a\n  at b", "at a"),
            (
                "`/srv/tools/charge.sh` exited with status 1: card declined",
                "`charge.sh` exited with status 1: card declined",
            ),
            ("`./tools/charge` was ended by signal 11", "`charge` was ended by signal 11"),
            ("`/srv/data` cannot be read", "`/srv/data` cannot be read"),
        ] {
            assert_eq!(find_cause_line(message), expected, "{message}");
        }
    }

    #[test]
    fn a_long_cause_is_cut_between_letters() {
        let text = find_cause_line(&"ä".repeat(MAX_CAUSE_BYTES));
        assert!(text.ends_with('…') && text.len() <= MAX_CAUSE_BYTES + '…'.len_utf8());
    }
}
