use std::fmt::Write;

/// Escapes a quoted label of a Mermaid diagram. Mermaid interprets Markdown in a label, and
/// entities of the form `#code;`.
pub fn escape_mermaid(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_alphanumeric() || matches!(c, ' ' | '.' | '-' | '/' | ':' | ',') => {
                escaped.push(c);
            }
            c => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
        }
    }
    escaped
}

pub fn escape_dot(text: &str) -> String {
    text.replace('&', "&amp;").replace('\\', "\\\\").replace('"', "\\\"")
}

/// Escapes content or a quoted attribute of XML. Characters that XML forbids become `\u{fffd}`.
pub fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        let hostile = "a\"b\\c]`<x> #1;&'\u{0}\u{7}\n日本 é";
        assert_eq!(
            escape_mermaid(hostile),
            "a#34;b#92;c#93;#96;#60;x#62; #35;1#59;#38;#39;#0;#7;#10;日本 é"
        );
        assert_eq!(escape_dot(hostile), "a\\\"b\\\\c]`<x> #1;&amp;'\u{0}\u{7}\n日本 é");
        assert_ne!(
            escape_dot("<b>#"),
            escape_dot("&lt;b&gt;&#35;"),
            "Graphviz would draw both in the same way"
        );
        assert_eq!(escape_dot("&lt;&#35;"), "&amp;lt;&amp;#35;");
        assert_eq!(
            escape_xml(hostile),
            "a&quot;b\\c]`&lt;x&gt; #1;&amp;&#39;\u{fffd}\u{fffd}&#10;日本 é"
        );
    }
}
