//! Converts HTML to the visible text, similar to Markdown, in one or two passes.
//!
//! The converter builds no tree, so deep nesting and invalid markup cost no more than other text.

use std::mem;

use html5gum::{DefaultEmitter, EndTag, HtmlString, StartTag, Token, Tokenizer};
use reqwest::Url;

/// Longest address of a link that is kept. A longer address usually contains data.
pub(super) const MAX_LINK_BYTES: usize = 2 << 10;
const MAX_TITLE_BYTES: usize = 1 << 10;
const HIDDEN_TAGS: [&[u8]; 9] = [
    b"canvas",
    b"head",
    b"iframe",
    b"noscript",
    b"object",
    b"script",
    b"style",
    b"svg",
    b"template",
];
/// Elements that surround the content of a page.
const SURROUNDING_TAGS: [&[u8]; 3] = [b"aside", b"footer", b"nav"];
const BLOCK_TAGS: [&[u8]; 27] = [
    b"address",
    b"article",
    b"aside",
    b"blockquote",
    b"body",
    b"dd",
    b"details",
    b"div",
    b"dl",
    b"dt",
    b"fieldset",
    b"figcaption",
    b"figure",
    b"footer",
    b"form",
    b"header",
    b"hr",
    b"main",
    b"nav",
    b"ol",
    b"p",
    b"section",
    b"summary",
    b"table",
    b"tbody",
    b"thead",
    b"ul",
];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) text: String,
}

/// Reads a page until the text has about `max_bytes` bytes. Keeps links, resolved against `base`.
pub(super) fn read_page(html: &str, base: &Url, max_bytes: usize) -> Page {
    let (page, is_whole) = PageReader::new(base, &SURROUNDING_TAGS).read(html, max_bytes);
    if is_whole && !page.text.is_empty() {
        return page;
    }
    // Reads the page again with its navigation, because a hidden element has no end tag or the page
    // has no other text.
    PageReader::new(base, &[]).read(html, max_bytes).0
}

/// Resolves a link. Returns `None` if the address is invalid or too long.
pub(super) fn join_link(base: &Url, href: &str) -> Option<Url> {
    // Checks the lengths before joining: many short links with a long base would produce much data.
    let is_short = href.len() <= MAX_LINK_BYTES && base.as_str().len() <= MAX_LINK_BYTES;
    let url = is_short.then(|| base.join(href.trim()).ok())??;
    (url.as_str().len() <= MAX_LINK_BYTES).then_some(url)
}

pub(super) fn strip_tags(html: &str) -> String {
    let mut text = String::new();
    for token in html_tokens(html) {
        if let Token::String(part) = token {
            text.push_str(&String::from_utf8_lossy(&part));
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the tokens of a document. The contents of a script are one token.
pub(super) fn html_tokens(html: &str) -> impl Iterator<Item = Token> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(html, emitter).flatten()
}

pub(super) fn get_attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    let value = tag.attributes.get(name)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

struct PageReader<'a> {
    base: &'a Url,
    surrounding_tags: &'a [&'static [u8]],
    page: Page,
    is_title: bool,
    /// The element whose contents are left out, and its nesting depth.
    hidden_element: Option<(HtmlString, usize)>,
    preformatted_depth: usize,
    /// The address of the open link, and the position where its text starts.
    link: Option<(Url, usize)>,
    /// `true` if a space comes before the next word.
    needs_space: bool,
    /// `true` directly after the marker of a list item. The first text of the item stays on that
    /// line.
    is_after_marker: bool,
}

impl<'a> PageReader<'a> {
    fn new(base: &'a Url, surrounding_tags: &'a [&'static [u8]]) -> Self {
        Self {
            base,
            surrounding_tags,
            page: Page::default(),
            is_title: false,
            hidden_element: None,
            preformatted_depth: 0,
            link: None,
            needs_space: false,
            is_after_marker: false,
        }
    }

    /// Returns the page, and whether every hidden element had an end tag.
    fn read(mut self, html: &str, max_bytes: usize) -> (Page, bool) {
        for token in html_tokens(html) {
            if self.page.text.len() > max_bytes {
                break;
            }
            match token {
                Token::StartTag(tag) => self.start_tag(&tag),
                Token::EndTag(tag) => self.end_tag(&tag),
                Token::String(text) => self.push_text(&String::from_utf8_lossy(&text)),
                Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => (),
            }
        }
        self.close_link();
        let is_whole = self.hidden_element.is_none();
        let title = self.page.title.split_whitespace().collect::<Vec<_>>().join(" ");
        (Page { title, text: self.page.text.trim().to_owned() }, is_whole)
    }

    fn start_tag(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        if name == b"title" {
            self.is_title = self.page.title.is_empty();
            return;
        }
        if name == b"body" {
            // Ends a hidden `head`, whose end tag is optional.
            self.hidden_element = None;
        }
        if let Some((hidden, depth)) = &mut self.hidden_element {
            *depth += usize::from(*hidden == tag.name && !tag.self_closing);
            return;
        }
        if HIDDEN_TAGS.contains(&name) || self.surrounding_tags.contains(&name) {
            self.break_lines(1);
            if !tag.self_closing {
                self.hidden_element = Some((tag.name.clone(), 1));
            }
            return;
        }
        self.start_shown_tag(name, tag);
    }

    fn start_shown_tag(&mut self, name: &[u8], tag: &StartTag<()>) {
        match name {
            [b'h', level @ b'1'..=b'6'] => {
                self.break_lines(2);
                let marks = usize::from(level - b'0');
                self.page.text.push_str(&"#".repeat(marks));
                self.needs_space = true;
            }
            b"br" | b"tr" => self.break_lines(1),
            b"li" => {
                self.is_after_marker = false;
                self.break_lines(1);
                self.page.text.push('-');
                self.needs_space = true;
                self.is_after_marker = true;
            }
            b"td" | b"th" => {
                if !self.is_line_start() {
                    self.page.text.push_str(" |");
                }
                self.needs_space = true;
            }
            b"pre" => {
                self.break_lines(2);
                self.preformatted_depth += 1;
            }
            b"a" => self.open_link(tag),
            b"img" => {
                if let Some(alt) = get_attribute(tag, b"alt") {
                    self.push_text(&alt);
                }
            }
            _ if BLOCK_TAGS.contains(&name) => self.break_lines(2),
            _ => (),
        }
    }

    fn end_tag(&mut self, tag: &EndTag<()>) {
        let name: &[u8] = &tag.name;
        if name == b"title" {
            self.is_title = false;
            return;
        }
        if let Some((hidden, depth)) = &mut self.hidden_element {
            if *hidden == tag.name {
                *depth -= 1;
                if *depth == 0 {
                    self.hidden_element = None;
                }
            }
            return;
        }
        match name {
            b"a" => self.close_link(),
            b"pre" => {
                self.preformatted_depth = self.preformatted_depth.saturating_sub(1);
                self.break_lines(2);
            }
            [b'h', b'1'..=b'6'] => self.break_lines(2),
            b"li" | b"tr" => self.break_lines(1),
            _ if BLOCK_TAGS.contains(&name) => self.break_lines(2),
            _ => (),
        }
    }

    fn push_text(&mut self, text: &str) {
        if self.is_title {
            let room = MAX_TITLE_BYTES.saturating_sub(self.page.title.len());
            self.page.title.push_str(&text[..text.floor_char_boundary(room)]);
            return;
        }
        if self.hidden_element.is_some() {
            return;
        }
        if self.preformatted_depth > 0 {
            self.page.text.push_str(text);
            self.is_after_marker = false;
            return;
        }
        let mut words = text.split_whitespace().peekable();
        self.needs_space |= text.starts_with(char::is_whitespace);
        while let Some(word) = words.next() {
            if mem::take(&mut self.needs_space) && !self.is_line_start() {
                self.page.text.push(' ');
            }
            self.page.text.push_str(word);
            self.is_after_marker = false;
            self.needs_space = words.peek().is_some() || text.ends_with(char::is_whitespace);
        }
    }

    fn is_line_start(&self) -> bool {
        self.page.text.is_empty() || self.page.text.ends_with('\n')
    }

    fn break_lines(&mut self, line_breaks: usize) {
        if self.is_after_marker {
            return;
        }
        self.needs_space = false;
        let text = &mut self.page.text;
        if text.is_empty() {
            return;
        }
        let present =
            text.bytes().rev().take(line_breaks).take_while(|byte| *byte == b'\n').count();
        text.push_str(&"\n".repeat(line_breaks - present));
    }

    fn open_link(&mut self, tag: &StartTag<()>) {
        self.close_link();
        let Some(href) = get_attribute(tag, b"href").filter(|href| !href.starts_with('#')) else {
            return;
        };
        let Some(url) = join_link(self.base, &href) else { return };
        if matches!(url.scheme(), "http" | "https") {
            if mem::take(&mut self.needs_space) && !self.is_line_start() {
                self.page.text.push(' ');
            }
            self.link = Some((url, self.page.text.len()));
        }
    }

    /// Writes a link as `[text](address)`. Drops the address of a link that has no text or spans
    /// several lines.
    fn close_link(&mut self) {
        let Some((url, from)) = self.link.take() else { return };
        let text = &self.page.text[from..];
        if text.trim().is_empty() || text.contains('\n') {
            return;
        }
        let start = from + text.len() - text.trim_start().len();
        self.page.text.insert(start, '[');
        self.page.text.push_str("](");
        self.page.text.push_str(url.as_str());
        self.page.text.push(')');
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_page_text(html: &str, expected: Expect) {
        let base = "https://example.com/a/b".parse().unwrap();
        let page = read_page(html, &base, usize::MAX);
        expected.assert_eq(&format!("{}\n---\n{}", page.title, page.text));
    }

    #[test]
    fn a_page_becomes_text() {
        check_page_text(
            r##"<!doctype html><html><head><title> A &amp; B
             </title><style>p { color: red }</style><script>if (a < b) "</p>"</script></head><body>
            <nav><ul><li><a href="/home">Home</a></ul></nav>
            <h1>Big   <em>title</em></h1><p>One <b>two</b>
            three&nbsp;&eacute;.<br>Next <a href="c?d=1&amp;e">a link</a>, <a href="#x">none</a>.</p>
            <ul><li>first<li><p>second</p></li></ul>
            <pre>  let x = 1;
y</pre>
            <table><tr><th>k<th>v</tr><tr><td>1</td><td>2</td></tr></table>
            <img src=x alt="a picture"><footer>never</footer></body></html>"##,
            expect![[r"
                A & B
                ---
                # Big title

                One two three é.
                Next [a link](https://example.com/a/c?d=1&e), none.

                - first
                - second

                  let x = 1;
                y

                k | v
                1 | 2

                a picture"]],
        );
    }

    #[test]
    fn an_unclosed_element_does_not_hide_text() {
        check_page_text(
            "<nav><p>all of it",
            expect![[r"

            ---
            all of it"]],
        );
        check_page_text(
            "<title>t</title><p>a<svg><p>b</svg>c",
            expect![[r"
            t
            ---
            a
            c"]],
        );
        check_page_text(
            "just <text & more",
            expect![[r"

            ---
            just"]],
        );
        check_page_text(
            "",
            expect![[r"

            ---
        "]],
        );
    }

    #[test]
    fn entities_are_decoded() {
        assert_eq!(strip_tags("a &lt;b&gt; &quot;c&quot; <i>d</i>&#39;s"), "a <b> \"c\" d's");
    }

    #[test]
    fn deep_nesting_does_not_lengthen_the_text() {
        let html = "<div><ul><li><a href=x>".repeat(100_000);
        let base = "https://example.com".parse().unwrap();
        assert!(read_page(&html, &base, usize::MAX).text.len() < html.len());
    }

    #[test]
    fn the_text_of_a_page_is_no_longer_than_the_page() {
        let base: Url = format!("https://example.com/{}", "a".repeat(60_000)).parse().unwrap();
        let html = "<a href=?>x</a> ".repeat(10_000);
        assert_eq!(read_page(&html, &base, usize::MAX).text, "x ".repeat(10_000).trim_end());
        let base: Url = "https://example.com/".parse().unwrap();
        let max_bytes = 10_000;
        let long = format!("<title>{}</title>{html}", "t ".repeat(10_000));
        let page = read_page(&long, &base, max_bytes);
        assert!(
            page.title.len() <= MAX_TITLE_BYTES && page.text.len() < max_bytes + MAX_LINK_BYTES,
            "{}",
            page.text.len()
        );
        let href = "b".repeat(MAX_LINK_BYTES + 1);
        assert_eq!(read_page(&format!("<a href={href}>x</a>"), &base, max_bytes).text, "x");
    }
}
