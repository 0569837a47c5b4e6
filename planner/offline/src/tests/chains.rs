//! Values that chains of tools produce, and queries for which no chain may be made up.

use expect_test::expect;

use super::*;

fn text_schema() -> Value {
    json!({ "type": "string" })
}

fn link(name: &str, input: &str, outputs: &[&str]) -> ToolDefinition {
    let mut fields = json!({});
    for output in outputs {
        fields[*output] = text_schema();
    }
    let mut made = tool(name, "", json!({ format!("{input}!"): text_schema() }));
    let words = name.replace('_', " ");
    made.description = format!("{}.", words[..1].to_uppercase() + &words[1..]);
    made.output_schema = Some(json!({ "type": "object", "properties": fields }));
    made.effect = Effect::Read;
    made
}

fn act(name: &str, input: &str) -> ToolDefinition {
    ToolDefinition { effect: Effect::Once, output_schema: None, ..link(name, input, &[]) }
}

fn shop() -> Vec<ToolDefinition> {
    vec![
        link("get_order", "order_id", &["order_id", "customer_id", "payment_id", "total"]),
        link("get_customer", "customer_id", &["name", "email", "city"]),
        link("get_payment", "payment_id", &["payment_id", "receipt_id", "status"]),
        act("refund_payment", "payment_id"),
        act("block_customer", "customer_id"),
        act("void_receipt", "receipt_id"),
    ]
}

fn plan(tools: Vec<ToolDefinition>, query: &str) -> String {
    outcome(&catalog(tools), query)
}

#[test]
fn a_code_of_one_thing_is_no_id_of_another() {
    for query in ["Refund the payment of order A-1020", "Block the customer of order A-1020"] {
        let found = plan(shop(), query);
        assert!(found.starts_with("no plan: "), "{query}: {found}");
    }
    expect![[r#"
        refund_payment {"payment_id":"P-7"}
    "#]]
    .assert_eq(&plan(shop(), "Refund payment P-7"));
}

#[test]
fn an_id_of_another_thing_is_never_taken() {
    let tools = vec![
        link("get_user", "user_id", &["user_id", "id", "name"]),
        act("cancel_order", "order_id"),
    ];
    let found = plan(tools, "Cancel the order of user U-5");
    assert!(found.starts_with("no plan: `order_id` of `cancel_order` is missing"), "{found}");
}

/// `Which order?` is a question that the planner must not answer by the first order of a list.
#[test]
fn an_item_of_a_list_is_never_taken() {
    let mut list = link("list_orders", "customer_id", &[]);
    let item = json!({ "type": "object", "properties": { "order_id": text_schema() } });
    list.output_schema = Some(
        json!({ "type": "object", "properties": { "orders": { "type": "array", "items": item } } }),
    );
    let found =
        plan(vec![list, act("cancel_order", "order_id")], "Cancel the order of customer C-33");
    assert!(found.starts_with("no plan: `order_id` of `cancel_order` is missing"), "{found}");
}

#[test]
fn an_answer_is_found_by_a_chain() {
    let query = "We need one detail of a case. The only reference left is the order `A-1020`. What is the \
                 customer email?";
    expect![[r#"
        get_order {"order_id":"A-1020"}
        get_customer {"customer_id":"{{get_order.customer_id}}"}
    "#]]
    .assert_eq(&plan(shop(), query));
}

#[test]
fn a_question_without_a_known_value_has_no_answer() {
    for query in ["What is the customer email?", "What is the customer email of my order?"] {
        let found = plan(shop(), query);
        assert!(found.starts_with("no plan: "), "{query}: {found}");
    }
}

#[test]
fn no_chain_answers_a_query_that_orders_something() {
    let query = "The reference is order `A-1020`. Block it. What is the customer email?";
    let found = plan(shop(), query);
    assert!(!found.contains("get_customer"), "{found}");
}

#[test]
fn the_order_of_tools_changes_no_chain() {
    let mut tools = shop();
    tools.push(link("get_invoice", "order_id", &["payment_id", "customer_id"]));
    let query = "The reference is order `A-1020`. What is the customer email?";
    let first = plan(tools.clone(), query);
    assert!(first.contains("get_customer"), "{first}");
    for _ in 0..tools.len() {
        tools.rotate_left(1);
        assert_eq!(plan(tools.clone(), query), first);
    }
}
