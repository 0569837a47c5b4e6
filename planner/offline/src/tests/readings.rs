//! How words become values where grammar alone does not say it: one table, tool by tool.

use super::*;

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn number(about: &str) -> Value {
    json!({ "type": "number", "description": about })
}

fn whole(about: &str) -> Value {
    json!({ "type": "integer", "description": about })
}

/// Makes a tool that only looks.
fn look(name: &str, about: &str, fields: Value) -> ToolDefinition {
    ToolDefinition { effect: Effect::Read, ..tool(name, about, fields) }
}

/// Checks which calls queries become, as JSON without names: all of them, in their order.
fn calls(tool: ToolDefinition, table: &[(&str, &[Value])]) {
    let tools = catalog(vec![tool]);
    let mut wrong = Vec::new();
    for (query, expected) in table {
        let said = propose(query, &tools).map(|it| {
            let steps = it.draft.tools.into_iter();
            steps.filter_map(|it| it.parameters).collect::<Vec<Value>>()
        });
        match said {
            Ok(said) if said == *expected => (),
            Ok(said) => wrong.push(format!("{query}\n  {}", json!(said))),
            Err(err) => wrong.push(format!("{query}\n  {err}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn fairs() -> ToolDefinition {
    look(
        "find_fairs",
        "Find fairs of a kind in a town",
        json!({
            "town!": text("The town"), "kind!": text("What kind of fair"),
            "days": whole("How many days from now to look"),
        }),
    )
}

#[test]
fn each_order_keeps_its_own_words() {
    calls(
        fairs(),
        &[
            (
                "Find antique fairs in Oslo for the next 14 days and then find horse fairs in Bergen for the next 10 days",
                &[
                    json!({ "town": "Oslo", "kind": "antique", "days": 14 }),
                    json!({ "town": "Bergen", "kind": "horse", "days": 10 }),
                ],
            ),
            (
                "Find antique fairs in Oslo for the next 14 days and finally find horse fairs in Bergen",
                &[
                    json!({ "town": "Oslo", "kind": "antique", "days": 14 }),
                    json!({ "town": "Bergen", "kind": "horse" }),
                ],
            ),
        ],
    );
    let set = tool(
        "set_oven",
        "Set the temperature of an oven",
        json!({ "oven!": text("Name of the oven"), "temperature!": number("Degrees Celsius") }),
    );
    calls(
        set,
        &[(
            "Set the big oven to 200 degrees, then set the small oven to 90 degrees",
            &[
                json!({ "oven": "big", "temperature": 200 }),
                json!({ "oven": "small", "temperature": 90 }),
            ],
        )],
    );
}

#[test]
fn an_order_that_lacks_something_is_not_filled_from_another() {
    let set = || {
        tool(
            "set_oven",
            "Set the temperature of an oven",
            json!({ "oven!": text("Name of the oven"), "temperature!": number("Degrees Celsius") }),
        )
    };
    for query in [
        "Set the big oven to 200 degrees, then set the small oven",
        "Set the big oven, then set the small oven to 90 degrees",
        "Set the big oven to 200 degrees, then scrub the small oven",
        "Set the big oven to 200 degrees, but do not set the small oven to 90 degrees",
    ] {
        assert!(propose(query, &catalog(vec![set()])).is_err(), "{query}");
    }
}

#[test]
fn a_unit_behind_a_list_is_that_of_all() {
    let value = look(
        "growth_of_savings",
        "Calculate what savings grow to",
        json!({ "savings!": number("What is saved, in euros"), "years!": whole("For how many years") }),
    );
    calls(
        value,
        &[(
            "What do savings of 400 euros grow to in 5, 8 and 12 years?",
            &[
                json!({ "savings": 400, "years": 5 }),
                json!({ "savings": 400, "years": 8 }),
                json!({ "savings": 400, "years": 12 }),
            ],
        )],
    );
}

#[test]
fn turns_are_taken_and_lists_are_not_turns() {
    let sum = look(
        "side_lengths",
        "Calculate the diagonal of a rectangle",
        json!({ "a!": whole("Length of one side"), "b!": whole("Length of the other side") }),
    );
    calls(
        sum,
        &[(
            "Calculate the diagonals of these rectangles: 6 and 8, 9 and 12.",
            &[json!({ "a": 6, "b": 8 }), json!({ "a": 9, "b": 12 })],
        )],
    );
}

#[test]
fn places_are_taken_whole_or_in_halves() {
    let near = look(
        "find_bakery",
        "Find bakeries nearby",
        json!({ "location!": text("Where to look"), "specialty!": text("What they bake") }),
    );
    calls(
        near,
        &[(
            "Find a bakery in Lyon, France with a specialty of 'brioche'",
            &[json!({ "location": "Lyon, France", "specialty": "brioche" })],
        )],
    );
    let halves = look(
        "get_tide",
        "Get the tides at a city on the coast",
        json!({ "city!": text("The city"), "country!": text("The country") }),
    );
    calls(
        halves,
        &[(
            "Get the tides at Porto, Portugal",
            &[json!({ "city": "Porto", "country": "Portugal" })],
        )],
    );
}

#[test]
fn who_made_something_is_told_from_what_was_made() {
    let work = look(
        "find_recording",
        "Find recordings of a piece of music",
        json!({ "piece!": text("The piece"), "composer!": text("Who composed it") }),
    );
    calls(
        work,
        &[(
            "Find recordings of Verdi's opera 'Aida'",
            &[json!({ "piece": "Aida", "composer": "Verdi" })],
        )],
    );
}

#[test]
fn what_must_be_there_comes_first() {
    let plan = look(
        "get_fixtures",
        "Get the fixtures of a club",
        json!({
            "club_name!": text("Which club"), "number_of_fixtures!": whole("How many fixtures"),
            "venue": text("The city or place of the fixtures"),
        }),
    );
    calls(
        plan,
        &[(
            "Get the fixtures of Real Betis for the next 4 fixtures",
            &[json!({ "club_name": "Real Betis", "number_of_fixtures": 4 })],
        )],
    );
}

#[test]
fn codes_and_one_month_are_values() {
    let parcel = look(
        "parcel_status",
        "Get the status of a parcel",
        json!({ "parcel_id!": text("The parcel's identifier") }),
    );
    calls(parcel, &[("What is the status of parcel KX4471?", &[json!({ "parcel_id": "KX4471" })])]);
    let rain = look(
        "forecast_rain",
        "Forecast the rain at a place",
        json!({ "place!": text("The place"), "months!": whole("How many months ahead") }),
    );
    calls(
        rain,
        &[(
            "Forecast the rain at Lima for the next month",
            &[json!({ "place": "Lima", "months": 1 })],
        )],
    );
}

#[test]
fn what_leads_to_an_order_is_none() {
    let tools = catalog(vec![
        look(
            "get_exchange_rate",
            "Get the rate of exchange between two currencies",
            json!({ "base!": text("Currency to change"), "target!": text("Currency that is wanted") }),
        ),
        look(
            "get_sunrise",
            "Get the time of sunrise in a city",
            json!({ "city!": text("The city") }),
        ),
    ]);
    let query = "I need your help with a trip. Get the time of sunrise in Quito, then get the time of sunrise in Cuzco.";
    let said = outcome(&tools, query);
    assert!(
        said.contains(r#"{"city":"Quito"}"#)
            && said.contains(r#"{"city":"Cuzco"}"#)
            && !said.contains("exchange"),
        "{said}"
    );
}
