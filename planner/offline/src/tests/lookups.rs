use super::*;

fn read(name: &str, description: &str, fields: Value) -> ToolDefinition {
    ToolDefinition { effect: Effect::Read, ..tool(name, description, fields) }
}

fn world() -> Catalog {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let whole = |about: &str| json!({ "type": "integer", "description": about });
    catalog(vec![
        read(
            "weather.humidity",
            "Get the humidity of a city for some days.",
            json!({ "city!": text("The city."), "days!": whole("Number of days.") }),
        ),
        read(
            "loan_interest",
            "Compute the interest of a loan.",
            json!({
                "amount!": whole("The amount of the loan."),
                "rate!": { "type": "number", "description": "The rate as a decimal." },
                "years!": whole("The number of years."),
            }),
        ),
    ])
}

fn calls(query: &str) -> Vec<Value> {
    let proposal = propose(query, &world()).unwrap();
    assert_compiles(&proposal, &world());
    let steps = proposal.draft.tools.into_iter();
    steps.map(|step| json!({ step.name.unwrap(): step.parameters })).collect()
}

#[test]
fn a_question_is_answered_by_the_tool_that_shares_its_nouns() {
    let expected = [json!({ "weather.humidity": { "city": "New York", "days": 7 } })];
    assert_eq!(calls("How will the humidity be in New York for the next 7 days?"), expected);
    let quoted = "\"How will the humidity be in New York for the next 7 days?\"";
    assert_eq!(calls(quoted), expected);
}

#[test]
fn a_share_is_a_decimal_where_the_parameter_is_no_integer() {
    let said = "What interest does a loan of $2,000 cost at a rate of 5% for 3 years?";
    let expected = json!({ "loan_interest": { "amount": 2000, "rate": 0.05, "years": 3 } });
    assert_eq!(calls(said), [expected]);
}

#[test]
fn paired_values_become_parallel_calls() {
    let said = "What is the humidity in Oslo and Rome for 3 and 5 days respectively?";
    let call = |city: &str, days: u8| json!({ "weather.humidity": { "city": city, "days": days } });
    assert_eq!(calls(said), [call("Oslo", 3), call("Rome", 5)]);
    let said = "What is the humidity in Oslo and Rome for 3 days?";
    assert_eq!(calls(said), [call("Oslo", 3), call("Rome", 3)]);
}

fn parameters(tool: ToolDefinition, query: &str) -> Vec<Value> {
    let proposal = propose(query, &catalog(vec![tool])).unwrap();
    proposal.draft.tools.into_iter().map(|step| step.parameters.unwrap()).collect()
}

#[test]
fn the_first_slot_again_begins_the_next_call() {
    let whole = |about: &str| json!({ "type": "integer", "description": about });
    let fields =
        json!({ "num1!": whole("The first number."), "num2!": whole("The second number.") });
    let gcd = read("math.gcd", "Compute the greatest common divisor of two numbers.", fields);
    let said = "What is the greatest common divisor (GCD) of the pairs (45, 60) and (81, 27)?";
    let expected = [json!({ "num1": 45, "num2": 60 }), json!({ "num1": 81, "num2": 27 })];
    assert_eq!(parameters(gcd, said), expected);
}

#[test]
fn values_of_a_list_become_one_list() {
    let about = "Wanted features, such as camping, fishing or scenic views.";
    let features = json!({ "type": "array", "items": { "type": "string" }, "description": about });
    let city = json!({ "type": "string", "description": "The city." });
    let park = read(
        "find_park",
        "Find a nature park in a city.",
        json!({ "city!": city, "features!": features }),
    );
    let said = "Which nature park near Boston allows camping and scenic views?";
    let expected = [json!({ "city": "Boston", "features": ["camping", "scenic views"] })];
    assert_eq!(parameters(park, said), expected);
}

#[test]
fn the_form_of_a_figure_tells_its_slot() {
    let fields = json!({
        "revenue!": { "type": "integer", "description": "The revenue." },
        "year!": { "type": "integer", "description": "The year." },
    });
    let growth = read("growth", "Compute the growth of a company.", fields);
    let said = "How did the company grow in 2019 with $2 million of revenue?";
    assert_eq!(parameters(growth, said), [json!({ "revenue": 2_000_000, "year": 2019 })]);
}

#[test]
fn a_list_in_brackets_stays_whole() {
    let about = "The numbers.";
    let numbers = json!({ "type": "array", "items": { "type": "integer" }, "description": about });
    let sort = read("sort_numbers", "Sort numbers.", json!({ "numbers!": numbers }));
    let expected = [json!({ "numbers": [9, 4, 1] }), json!({ "numbers": [2, 8] })];
    assert_eq!(parameters(sort, "Sort [9, 4, 1] and [2, 8]."), expected);
}

#[test]
fn a_time_of_the_day_fills_a_time() {
    let fields = json!({
        "date!": { "type": "string", "description": "Date of the visit, YYYY-MM-DD." },
        "time!": { "type": "string", "description": "Time in 24-hour format, HH:MM." },
    });
    let reserve = read("reserve_table", "Reserve a table.", fields);
    let said = "Reserve a table on 12 October 2024 at 7 pm.";
    assert_eq!(parameters(reserve, said), [json!({ "date": "2024-10-12", "time": "19:00" })]);
}

#[test]
fn items_of_a_list_may_repeat_the_preposition() {
    let said = "What is the humidity of Oslo and of Rome for 3 days?";
    let call = |city: &str| json!({ "weather.humidity": { "city": city, "days": 3 } });
    assert_eq!(calls(said), [call("Oslo"), call("Rome")]);
}

#[test]
fn an_order_with_an_unknown_verb_is_no_lookup() {
    let title = json!({ "title!": { "type": "string" } });
    let board = catalog(vec![
        read("list_issues", "List the issues", json!({})),
        tool("create_issue", "Create an issue", title),
    ]);
    for query in ["Merge issue 3", "Fry the issues"] {
        assert!(propose(query, &board).is_err(), "{query}");
    }
}

#[test]
fn a_tool_that_acts_is_never_looked_up() {
    let fields = json!({ "city!": { "type": "string", "description": "The city." } });
    let acting = catalog(vec![tool("leave_city", "Leave a city for good.", fields)]);
    assert!(propose("What about the city of Oslo?", &acting).is_err());
}

/// Makes a tool that reads. The names of its fields are their descriptions.
fn read_fields(name: &str, description: &str, fields: &[(&str, &str)]) -> ToolDefinition {
    let schema = |(field, kind): &(&str, &str)| {
        let about = field.trim_end_matches('!').replace('_', " ");
        ((*field).to_owned(), json!({ "type": kind, "description": about }))
    };
    read(name, description, Value::Object(fields.iter().map(schema).collect()))
}

#[test]
fn in_announces_a_unit() {
    let fields = [("origin!", "string"), ("target!", "string"), ("unit", "string")];
    let distance = read_fields("get_distance", "Get the distance of two places.", &fields);
    let said = "What is the distance in miles from Oslo to Rome?";
    let expected = json!({ "origin": "Oslo", "target": "Rome", "unit": "miles" });
    assert_eq!(parameters(distance, said), [expected]);
}

#[test]
fn the_group_of_a_tool_is_no_value() {
    let fields = [("artist!", "string"), ("minutes!", "integer")];
    let play = read_fields("spotify.play", "Play songs of an artist.", &fields);
    let expected =
        [json!({ "artist": "Blur", "minutes": 20 }), json!({ "artist": "Pulp", "minutes": 15 })];
    let said = "Play songs of Blur and Pulp for 20 and 15 minutes respectively on Spotify.";
    assert_eq!(parameters(play, said), expected);
}

#[test]
fn values_that_take_turns_are_combined_with_the_other_values() {
    let fields = json!({
        "number!": { "type": "string", "description": "Number of the case." },
        "court!": { "type": "string", "description": "Court of the case." },
        "details!": { "type": "string", "enum": ["status", "date"] },
    });
    let case = read("get_case", "Get details of a case in a court.", fields);
    let said =
        "What are the status and the date of case XY12 in Kent Court, and case GH56 in York Court?";
    let call = |number: &str, court: &str, details: &str| json!({ "number": number, "court": court, "details": details });
    let mut calls = parameters(case, said);
    calls.sort_by_key(Value::to_string);
    let mut expected = vec![
        call("XY12", "Kent Court", "status"),
        call("XY12", "Kent Court", "date"),
        call("GH56", "York Court", "status"),
        call("GH56", "York Court", "date"),
    ];
    expected.sort_by_key(Value::to_string);
    assert_eq!(calls, expected);
}

#[test]
fn a_negation_may_be_some_words_before_its_flag() {
    let fields = [("forest!", "string"), ("include_impact", "boolean")];
    let growth = read_fields("get_growth", "Get the growth of a forest.", &fields);
    let said = "What is the growth of the forest of Dean if we do not include the impact?";
    let expected = json!({ "forest": "Dean", "include_impact": false });
    assert_eq!(parameters(growth, said), [expected]);
}

#[test]
fn choices_of_a_list_stay_together() {
    let about = json!({ "type": "string", "enum": ["hours", "prices"] });
    let fields = json!({
        "museum!": { "type": "string", "description": "The museum." },
        "details!": { "type": "array", "items": about },
    });
    let museum = read("get_museum", "Get details of a museum.", fields);
    let said = "Get me the museum in York: it has prices, and which hours?";
    let expected = json!({ "museum": "York", "details": ["prices", "hours"] });
    assert_eq!(parameters(museum, said), [expected]);
}

#[test]
fn a_list_of_small_words_gives_several_calls() {
    let fields = [("substance!", "string")];
    let point = read_fields("get_boiling_point", "Get the boiling point.", &fields);
    let said = "Get the boiling points of ethanol, acetone and benzene.";
    let call = |name: &str| json!({ "substance": name });
    assert_eq!(parameters(point, said), [call("ethanol"), call("acetone"), call("benzene")]);
}

#[test]
fn names_may_have_points_and_apostrophes() {
    let fields = [("place!", "string")];
    let visit = read_fields("get_visits", "Get the visits of a place.", &fields);
    let said = "Get the visits of Musée d'Orsay and of Washington D.C.";
    let calls = parameters(visit, said);
    assert_eq!(calls, [json!({ "place": "Musée d'Orsay" }), json!({ "place": "Washington D.C" })]);
}
