//! Phrases that describe a value, and orders of which a part would be dropped.

use super::*;

fn text() -> Value {
    json!({ "type": "string" })
}

/// A desk: pages and files are read, texts are written, sent and posted.
fn desk() -> Catalog {
    let read = |name: &str, about: &str, fields: Value, output: &[&str]| {
        let output: Map<String, Value> =
            output.iter().map(|field| ((*field).to_owned(), text())).collect();
        let mut tool = tool(name, about, fields);
        tool.effect = Effect::Read;
        tool.output_schema = Some(json!({ "type": "object", "properties": output }));
        tool
    };
    let room = json!({ "type": "string", "description": "Name of the room, e.g. kitchen" });
    catalog(vec![
        read(
            "fetch",
            "Fetch a web page.",
            json!({ "url!": { "type": "string", "format": "uri" } }),
            &["title", "text"],
        ),
        read("read_file", "Read a file.", json!({ "path!": text() }), &["content"]),
        read("summarize", "Summarize a text.", json!({ "text!": text() }), &["summary"]),
        tool("write_file", "Write text to a file.", json!({ "path!": text(), "content!": text() })),
        tool("delete_file", "Delete a file.", json!({ "path!": text() })),
        tool(
            "send_email",
            "Send an email.",
            json!({ "to!": { "type": "string", "format": "email" }, "subject": text(), "body!": text() }),
        ),
        tool(
            "create_issue",
            "Create an issue in a repository.",
            json!({ "title!": text(), "body": text() }),
        ),
        tool(
            "post_message",
            "Post a message to a channel.",
            json!({ "channel!": text(), "text!": text() }),
        ),
        tool("create_note", "Create a note.", json!({ "title!": text(), "content": text() })),
        tool("delete_blog", "Delete a blog.", json!({ "name!": text() })),
        tool(
            "set_priority",
            "Set the priority of a ticket.",
            json!({ "ticket_id!": text(), "priority!": { "enum": ["the lowest", "high"] } }),
        ),
        tool("turn_on_light", "Turn on the lights in a room.", json!({ "room!": room })),
    ])
}

/// Orders that were sound, and a part of the plan that each one becomes.
const SOUND: [(&str, &str); 28] = [
    ("write hello to out.txt", r#"{"path":"out.txt","content":"hello"}"#),
    (r#"write "the summary" to out.txt"#, r#""content":"the summary""#),
    ("write 'its title' to out.txt", r#""content":"its title""#),
    ("read a.txt and write it to b.txt", r#""content":"{{read_file.content}}""#),
    ("read a.txt and send it to sam@x.com", r#""body":"{{read_file.content}}""#),
    ("fetch https://x.io/a and write its title to p.txt", r#""content":"{{fetch.title}}""#),
    ("fetch https://x.io/a and create an issue titled its title", r#"{"title":"{{fetch.title}}"}"#),
    (
        "fetch https://x.io/a and create a note titled Page with content the text",
        r#"{"title":"Page","content":"{{fetch.text}}"}"#,
    ),
    (
        "fetch https://x.io/a and create a note titled Page with content its text",
        r#""content":"{{fetch.text}}""#,
    ),
    (r#"create an issue titled "the summary""#, r#"{"title":"the summary"}"#),
    ("create an issue titled The Rock is missing", r#"{"title":"The Rock is missing"}"#),
    ("create an issue titled The Rock", r#"{"title":"The Rock"}"#),
    ("create a note titled The White Album", r#"{"title":"The White Album"}"#),
    (
        "create an issue titled the login page crashes on Safari",
        r#""title":"the login page crashes on Safari""#,
    ),
    (
        "create an issue titled Login fails saying the login page shows nothing",
        r#""body":"the login page shows nothing""#,
    ),
    ("create a note titled Rust with content it's fast", r#""content":"it's fast""#),
    ("create an issue about the login page", r#"create_issue {"title":"login page"}"#),
    ("create a note called My list", r#"{"title":"My list"}"#),
    ("create a note titled my list", r#"{"title":"my list"}"#),
    (
        "send an email to sam@x.com saying the meeting is at noon",
        r#""body":"the meeting is at noon""#,
    ),
    ("send an email to sam@x.com saying the build failed", r#""body":"the build failed""#),
    ("post hello to the general channel", r#"{"channel":"general","text":"hello"}"#),
    ("delete the blog Rust notes", r#"delete_blog {"name":"Rust notes"}"#),
    ("delete the blog The Rock", r#"delete_blog {"name":"The Rock"}"#),
    ("delete a.txt", r#"delete_file {"path":"a.txt"}"#),
    ("delete the file a.txt", r#"delete_file {"path":"a.txt"}"#),
    ("turn on the lights in the kitchen", r#"{"room":"kitchen"}"#),
    ("read a.txt and create an issue titled Report", r#"create_issue {"title":"Report"}"#),
];

/// Orders whose values are only described, and the phrase that the refusal quotes.
const DESCRIBED: [(&str, &str); 17] = [
    ("write the summary to out.txt", "`the summary`"),
    ("write the article to out.txt", "`the article`"),
    ("fetch https://x.io/a and write the article to p.txt", "`the article`"),
    ("read a.txt and write the summary to sum.txt", "`the summary`"),
    ("send an email to sam@x.com with subject Report and body the summary", "`the summary`"),
    ("send an email to sam@x.com with subject the summary and body hello", "`the summary`"),
    ("send an email to sam@x.com with subject Report and body the report", "`the report`"),
    (
        "send an email to sam@x.com with subject Report and body the monthly report",
        "`the monthly report`",
    ),
    ("send an email to sam@x.com saying the report", "`the report`"),
    ("create an issue titled the summary", "`the summary`"),
    ("create an issue titled its title", "`its title`"),
    ("create an issue titled this problem", "`this problem`"),
    ("create a note titled the report", "`the report`"),
    ("create a note titled Report with content the article", "`the article`"),
    ("create a note titled Report with content their opinion", "`their opinion`"),
    ("create a note titled Report with content my opinion", "`my opinion`"),
    ("create a note titled Report with content the story of the week", "`the story of the week`"),
];

/// Orders that cannot be carried out whole, for whatever reason.
const REFUSED: [&str; 14] = [
    "fetch https://x.io/a and write the first paragraph to page.html",
    "fetch https://x.io/a and fetch https://x.io/b and create a note titled its title",
    "read a.txt and email it to sam@x.com",
    "read a.txt and email the report to sam@x.com",
    "fetch https://x.io/a and email sam@x.com the text",
    "fetch https://x.io/a and email sam@x.com its contents",
    "fetch https://x.io/a, email sam@x.com its title",
    "read a.txt and email sam@x.com",
    "read a.txt, then archive it",
    "read a.txt and then summarize it and email the summary to sam@x.com",
    "read a.txt and b.txt and email them to sam@x.com",
    "write his report to out.txt",
    "write this text to out.txt",
    "delete the report",
];

#[test]
fn sound_orders_are_planned() {
    let tools = desk();
    let wrong = SOUND.iter().filter_map(|(query, part)| {
        let outcome = outcome(&tools, query);
        (!outcome.contains(part)).then(|| format!("{query}\n    {outcome}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_described_value_is_no_text() {
    let tools = desk();
    let wrong = DESCRIBED.iter().filter_map(|(query, phrase)| {
        let outcome = outcome(&tools, query);
        let is_right = outcome.starts_with("no plan: ")
            && outcome.contains(phrase)
            && outcome.contains("put it in quotation marks if it is meant literally");
        (!is_right).then(|| format!("{query}\n    {outcome}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_part_of_an_order_is_dropped() {
    let tools = desk();
    let wrong = REFUSED.iter().filter_map(|query| {
        let outcome = outcome(&tools, query);
        (!outcome.starts_with("no plan: ")).then(|| format!("{query}\n    {outcome}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
