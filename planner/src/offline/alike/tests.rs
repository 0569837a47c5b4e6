use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use shared::tool::{Effect, ToolDefinition};

use super::*;
use crate::{
    catalog::CatalogTool,
    embed::{Embedder as _, Local},
    select::cosine,
};

/// Returns tools of these names.
fn catalog_of(names: &[&str]) -> Catalog {
    Catalog::new(names.iter().map(|name| {
        let definition = ToolDefinition {
            name: name.parse().unwrap(),
            set: "s".parse().unwrap(),
            description: String::new(),
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            effect: Effect::Once,
            examples: Vec::new(),
            is_callable: true,
        };
        CatalogTool { definition: Arc::new(definition), is_active: true }
    }))
}

/// Queries that ask for the same.
const SAME: &[(&str, &str)] = &[
    (
        "Create author Alice with email alice@test.com",
        "Please make a new author called Alice with the e-mail address alice@test.com.",
    ),
    (
        "Create author Alice with email alice@test.com",
        "I'd like you to add an author named Alice with email alice@test.com, please",
    ),
    ("What's the weather in Paris?", "How is the weather in Paris"),
    ("What is the weather in Paris?", "Could you tell me the weather in Paris, please?"),
    ("Show me the weather in Paris", "what's the weather in Paris"),
    ("list all blogs", "show me every blog"),
    ("list all blogs", "Could you give me the list of all the blogs?"),
    ("List blogs.", "What are the blogs?"),
    ("list the categories", "get every category"),
    ("Delete the blog \"Salt\"", "Remove the blog titled \"Salt\""),
    ("delete the blog \"Salt\"", "Get rid of the blog \"Salt\"!"),
    (
        "Find flights from Oslo to Bergen on 2026-03-01",
        "Search for flights from Oslo to Bergen on 2026-03-01",
    ),
    ("Look for hotels in Oslo under 100 euros", "find me hotels in Oslo under 100 euros, thanks"),
    ("Book a table for 4 at 19:30", "I want to reserve a table for 4 at 19:30"),
    ("Buy 5 shares of ACME", "purchase 5 shares of ACME"),
    ("turn on the lights in the kitchen", "Please switch on the lights in the kitchen"),
    ("Calculate the area of a circle of radius 5", "Compute the area of a circle of radius 5"),
    ("Change the email of user 7 to a@b.c", "update the e-mail of user 7 to a@b.c"),
    (
        "Create author Alice, then create blog by Alice titled Hello",
        "Make a new author Alice and create a blog by Alice titled Hello",
    ),
    ("Don't list the blogs by Bob", "do not list the blogs by Bob"),
    ("start job 17", "Can you begin job 17?"),
    ("\"list all open invoices\"", "Hi, please show me all of the open invoices"),
];

/// Queries that do not.
const OTHER: &[(&str, &str)] = &[
    ("Create author Alice with email a@b.c", "Delete author Alice with email a@b.c"),
    ("Create author Alice with email a@b.c", "Create author Alice with email a@b.d"),
    ("Create a blog by Alice about the sea", "Create a blog by Bob about the sea"),
    ("list blogs about cats", "list blogs about dogs"),
    ("turn on the lights in the kitchen", "turn off the lights in the kitchen"),
    ("turn on the lights in the kitchen", "turn on the lights in the bedroom"),
    ("transfer 5 from Alice to Bob", "transfer 5 from Bob to Alice"),
    ("transfer 5 from Alice to Bob", "transfer 5 to Alice from Bob"),
    ("What is the temperature in Oslo?", "What is the humidity in Oslo?"),
    ("What is the weather in Oslo?", "What was the weather in Oslo?"),
    ("list all blogs", "list all authors"),
    ("list the open invoices", "list the paid invoices"),
    ("Find flights from Oslo to Bergen", "Find flights from Bergen to Oslo"),
    ("Get the oldest blog", "Get the newest blog"),
    ("Get the total revenue of 2025", "Get the average revenue of 2025"),
    ("Get the total revenue of 2025", "Get the total revenue of 2024"),
    ("Send the report to Bob", "Do not send the report to Bob"),
    ("Send the report to Bob", "Never send the report to Bob"),
    ("enable user a@b.c", "disable user a@b.c"),
    ("buy 5 shares of ACME", "sell 5 shares of ACME"),
    ("add a note saying buy milk", "add a note saying buy bread"),
    ("add a note saying buy milk", "add a note saying purchase milk"),
    ("create blog titled hello", "create blog titled goodbye"),
    ("create blog titled \"Hello\"", "create blog titled \"hello\""),
    ("increase the price by 5 percent", "decrease the price by 5 percent"),
    ("Lock the front door", "Unlock the front door"),
    ("Show the blogs before 2026-03-01", "Show the blogs after 2026-03-01"),
    ("Set the hall to 18 and the attic to 20", "Set the hall to 20 and the attic to 18"),
    ("Set the hall to 18 and the attic to 20", "Set the attic to 18 and the hall to 20"),
    ("Count the users", "List the users"),
    ("archive the blog \"Salt\"", "publish the blog \"Salt\""),
    ("Create author Alice", "Create author Alice and delete her blogs"),
    ("Create author Alice, Bob", "Create author Alice Bob"),
    ("list users", "list users and their passwords"),
    ("delete the old blogs", "delete the blogs"),
    ("delete the blogs", "delete all blogs"),
    ("delete the blog", "delete the blogs"),
    ("get the blog", "get the blogs"),
    ("show me red shoes", "show me blue shoes"),
    ("show authors without blogs", "show authors with blogs"),
    ("Delete blog 7", "Should I delete blog 7?"),
    ("Delete blog 7", "Delete blog 7?"),
    ("Delete blog 7", "Can I delete blog 7?"),
    ("Delete blog 7", "I have deleted blog 7"),
    ("Get the door open", "Get out the door open"),
    ("give Alice access", "show Alice access"),
    ("Book a table for 4 at 7", "Book a table at 4 for 7"),
    ("List my bike for 20 euros", "Show my bike for 20 euros"),
    ("find out the price", "search out the price"),
    ("make Alice an admin", "create Alice an admin"),
    ("set the mark of Bob to A", "set the mark of Bob to B"),
    ("meet on Monday", "meet on Tuesday"),
    ("list inbound calls", "list outbound calls"),
    ("show blogs of users", "show users of blogs"),
    ("say it in French", "say it in Finnish"),
    ("GET /users/7", "GET /users/8"),
    ("pay 1,000", "pay 1.000"),
    ("pay $20", "pay €20"),
    ("delete 507f1f77bcf86cd799439011", "delete 507f1f77bcf86cd799439012"),
];

/// Paraphrases that were written before the lists were.
const EARLIER: &[(&str, &str)] = &[
    (
        "Create author Alice with email alice@test.com",
        "Please make a new author called Alice, email alice@test.com",
    ),
    (
        "Create author Alice with email alice@test.com",
        "Add an author named Alice with the e-mail address alice@test.com",
    ),
    ("What's the weather in Paris?", "How is the weather in Paris?"),
    ("What's the weather in Paris?", "Tell me the weather for Paris"),
    ("What is the current temperature in Oslo?", "How hot is it in Oslo right now?"),
    ("list all blogs", "show me every blog"),
    ("list all blogs", "Could you give me the list of all the blogs?"),
    ("List the open invoices of Acme", "Show me Acme's open invoices"),
    ("Delete the blog \"Salt\"", "Remove the blog titled \"Salt\""),
    ("Send an email to bob@x.org saying \"hi\"", "Mail \"hi\" to bob@x.org"),
    (
        "Find flights from Oslo to Bergen on 2026-03-01",
        "Search for flights from Oslo to Bergen on 2026-03-01",
    ),
    ("Book a table for 4 at Luigi's at 19:30", "Reserve a table at Luigi's for 4 people at 19:30"),
    ("Convert 20 USD to EUR", "How much is 20 USD in EUR?"),
    ("Which authors have no blog yet?", "What authors do not have a blog yet?"),
    ("Translate \"good morning\" into French", "What is \"good morning\" in French?"),
    (
        "Set the thermostat in the hall to 18 degrees",
        "Please set the hall thermostat to 18 degrees",
    ),
    ("Get the total revenue of 2025 by country", "Show 2025 total revenue per country"),
    ("Summarise the report q3.pdf", "Give me a summary of the report q3.pdf"),
    ("Count the users who signed up in May", "How many users signed up in May?"),
    ("turn on the lights in the kitchen", "switch the kitchen lights on"),
];

fn essence(query: &str) -> Essence {
    Essence::of(query, &catalog_of(&["createAuthor", "listBlogs", "getBlog"])).unwrap()
}

#[test]
fn what_asks_for_the_same_comes_to_the_same() {
    for (one, other) in SAME {
        assert_eq!(essence(one), essence(other), "{one} | {other}");
        assert_eq!(essence(one).key(), essence(other).key());
    }
}

#[test]
fn what_asks_for_something_else_does_not() {
    for (one, other) in OTHER {
        assert_ne!(essence(one), essence(other), "{one} | {other}");
        assert_ne!(essence(one).key(), essence(other).key());
    }
}

/// It is a third: for the others a model is asked, as it is where nothing is kept.
#[test]
fn what_needs_more_than_lists_is_left_to_the_model() {
    let found = EARLIER.iter().filter(|(one, other)| essence(one) == essence(other)).count();
    assert_eq!((found, EARLIER.len()), (6, 20));
}

#[test]
fn verbs_that_tools_tell_apart_stay_apart() {
    let catalog = catalog_of(&["create_user", "add_user", "show_window", "listUsers"]);
    let read = |query: &str| Essence::of(query, &catalog).unwrap();
    assert_ne!(read("create user Ann"), read("add user Ann"));
    assert_ne!(read("show window 5"), read("get window 5"));
    assert_eq!(read("delete user Ann"), read("remove user Ann"));
    assert_eq!(read("list users"), read("fetch all users"));
}

#[test]
fn what_is_too_long_is_like_nothing() {
    let catalog = Catalog::default();
    for query in ["", " . ", "please", &"word ".repeat(500), &"x".repeat(BYTES + 1)] {
        assert_eq!(Essence::of(query, &catalog), None, "{query:.20}");
    }
}

#[test]
fn texts_of_a_draft_stand_in_both_queries() {
    let draft = |parameters: Value| -> Draft {
        serde_json::from_value(json!({ "tools": [{ "name": "t", "parameters": parameters }] }))
            .unwrap()
    };
    let before = "add a note saying hello to all the people";
    let now = "please add a note saying hello to all people";
    for (parameters, is_kept) in [
        (json!({ "text": "hello to all the people" }), false),
        (json!({ "text": "Hello to all the people!" }), false),
        (json!({ "deep": [{ "text": "to all the" }] }), false),
        (json!({ "text": "{{a.b}}: to all the {{c}}" }), false),
        (json!({ "text": "hello to all", "n": 5 }), true),
        (json!({ "text": "what neither says" }), true),
        (json!({ "text": "{{a.b}}" }), true),
    ] {
        assert_eq!(keeps_texts(&draft(parameters.clone()), before, now), is_kept, "{parameters}");
    }
    let inner = json!({ "tools": [{ "plan": { "tools": [
        { "name": "t", "parameters": { "text": "to all the people" } }] } }] });
    assert!(!keeps_texts(&serde_json::from_value(inner).unwrap(), before, now));
}

/// The threshold is that of paraphrases by the encoder that is in the program; how many near misses
/// pass it shows that it decides nothing alone.
#[tokio::test]
async fn paraphrases_are_near() {
    let encoder = Local::builtin().await.unwrap();
    let near = async |pairs: &'static [(&str, &str)]| {
        let texts: Vec<&str> = pairs.iter().flat_map(|it| [it.0, it.1]).collect();
        let vectors = encoder.embed(&texts).await.unwrap();
        let near = vectors.chunks(2).map(|it| cosine(&it[0], &it[1]));
        let mut near: Vec<(f64, _)> = near.zip(pairs).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near
    };
    let same = near(SAME).await;
    assert!(same[0].0 >= SIMILARITY, "{same:?}");
    let other = near(OTHER).await;
    let passed = other.iter().filter(|it| it.0 >= SIMILARITY).count();
    assert!(passed > OTHER.len() * 3 / 4, "{passed} of {}: {other:?}", OTHER.len());
}

proptest! {
    #[test]
    fn what_is_said_of_two_names_is_not_said_of_two_others(
        [a, b] in ["[A-Z][a-z]{2,6}", "[A-Z][a-z]{2,6}"], number in 2..1000
    ) {
        prop_assume!(a != b);
        let query = |from: &str, to: &str, much: i32| {
            essence(&format!("send {much} from {from} to {to}"))
        };
        prop_assert_ne!(query(&a, &b, number), query(&b, &a, number));
        prop_assert_ne!(query(&a, &b, number), query(&a, &b, number + 1));
        prop_assert_eq!(query(&a, &b, number), essence(&format!("Please send {number} from {a} to {b}!")));
    }

    #[test]
    fn no_text_is_too_odd(text in "(\\PC|[ \n]|please|thanks|list|get|all|every|a|the|\"|,|\\?){0,40}") {
        let catalog = Catalog::default();
        let said = Essence::of(&text, &catalog);
        // What only says thanks changes nothing.
        let thanked = Essence::of(&format!("{text}, thanks"), &catalog);
        prop_assert!(said.is_none() || thanked.is_some());
    }
}
