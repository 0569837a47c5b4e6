//! Words for which nothing is done.

use super::*;

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn workshop() -> Catalog {
    let look = ToolDefinition {
        effect: Effect::Read,
        ..tool("find_page", "Find a page by its title", json!({ "title!": text("The title") }))
    };
    catalog(vec![
        tool(
            "remove_page",
            "Remove a page of the wiki",
            json!({ "page!": text("Name of the page") }),
        ),
        tool(
            "restart_machine",
            "Restart a machine",
            json!({ "machine!": text("Name of the machine") }),
        ),
        tool(
            "create_note",
            "Create a note",
            json!({ "title!": text("The title"), "content!": text("The text of the note") }),
        ),
        tool("turn_off_heater", "Turn off a heater", json!({ "heater!": text("Which heater") })),
        look,
    ])
}

#[test]
fn what_is_left_out_open_or_taken_back_is_not_done() {
    let tools = workshop();
    for (query, words) in [
        ("Remove page Imprint. Don't.", "Don't"),
        ("Remove page Imprint. Never mind.", "Never mind"),
        ("Remove page Imprint. Should I?", "Should I"),
    ] {
        let said = outcome(&tools, query);
        assert!(!said.contains("remove_page {"), "{query}: {said}");
        assert!(said.contains(&format!("`{words}`")), "{query}: {said}");
    }
    for query in [
        "Remove all pages but Imprint",
        "Remove page \"Imprint\" or page \"Contact\"",
        "Remove every page except Imprint",
        "Remove page Imprint unless Bob objects",
        "Remove page Imprint. Wait until Bob says yes.",
        "Remove page Imprint. Wait for Bob first.",
        "Remove page Imprint\nno, stop",
        "Remove all pages other than Imprint",
        "Restart the machine next to web-1",
        "Restart the machine after web-1",
        "Turn on the heater kitchen",
    ] {
        let said = outcome(&tools, query);
        let acts = ["remove_page {", "restart_machine {", "turn_off_heater {"];
        assert!(!acts.iter().any(|it| said.contains(it)), "{query}: {said}");
    }
}

#[test]
fn the_same_words_are_text_in_values_and_harmless_where_nothing_acts() {
    let tools = workshop();
    for (query, expected) in [
        ("Create note titled Plans with content small but fine", "small but fine"),
        ("Create note titled \"Now or never\" with content hello", "Now or never"),
        ("Create note titled Rules with content stop. wait. go.", "stop. wait. go"),
        ("Remove page \"All but one\"", "All but one"),
        ("Turn off the heater kitchen", "kitchen"),
        ("Find page Imprint or Contact", "find_page"),
    ] {
        let said = outcome(&tools, query);
        assert!(said.contains(expected), "{query}: {said}");
    }
}
