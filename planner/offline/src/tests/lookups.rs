//! Queries that only read, and say values in no order.

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

#[test]
fn a_tool_that_acts_is_never_looked_up() {
    let fields = json!({ "city!": { "type": "string", "description": "The city." } });
    let acting = catalog(vec![tool("leave_city", "Leave a city for good.", fields)]);
    assert!(propose("What about the city of Oslo?", &acting).is_err());
}
