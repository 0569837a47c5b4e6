use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};
use shared::tool::{Effect, ToolDefinition};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "calls read better without references")]
fn tool(name: &str, inputs: Value, outputs: Value) -> ToolDefinition {
    let (mut properties, mut required) = (json!({}), Vec::new());
    for (key, schema) in inputs.as_object().unwrap() {
        let plain = key.trim_end_matches('!');
        properties[plain] = schema.clone();
        if plain != key {
            required.push(plain);
        }
    }
    ToolDefinition {
        name: name.parse().unwrap(),
        set: "shop".parse().unwrap(),
        description: "Does it.".to_owned(),
        input_schema: json!({ "type": "object", "properties": properties, "required": required }),
        output_schema: Some(json!({ "type": "object", "properties": outputs })),
        effect: Effect::Read,
        examples: Vec::new(),
        is_callable: true,
    }
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn described(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn graph(tools: &[ToolDefinition]) -> ChainGraph {
    ChainGraph::new(tools.iter().map(|tool| (tool.name.to_string(), Arc::new(tool.clone()))))
}

fn route(graph: &ChainGraph, from: (&str, &str), to: (&str, &str)) -> Option<String> {
    let field = |(tool, input): (&str, &str)| {
        graph.tools()[graph.find(tool).unwrap()].input(input).unwrap().clone()
    };
    let given = [Given::new(json!("X"), &field(from))];
    let avoided = BTreeSet::from([graph.find(to.0).unwrap()]);
    let route = graph.find_route(Goal::Like(&field(to)), &given, &avoided)?;
    Some(show(graph, &route, &given))
}

fn show(graph: &ChainGraph, route: &Route, given: &[Given]) -> String {
    let mut ids = Vec::new();
    let mut text = String::new();
    for step in &route.steps {
        let name = &graph.tools()[step.tool].name;
        let inputs = step.inputs.iter().map(|input| {
            format!("{}={}", input.parameter, value_of(&input.source, given, &ids).unwrap())
        });
        let inputs = inputs.collect::<Vec<_>>().join(" ");
        text.extend([name.as_str(), "(", &inputs, ") "]);
        ids.push(name.clone());
    }
    let value = value_of(&route.source, given, &ids).unwrap();
    let only = if route.is_only { "only" } else { "one of several" };
    format!("{text}{value} {:?} {only}", route.worst_fit())
}

#[test]
fn a_value_fits_by_name_thing_type_and_form() {
    let number = json!({ "type": "integer" });
    let email = json!({ "type": "string", "format": "email" });
    let date = json!({ "type": "string", "format": "date" });
    let choice = json!({ "type": "string", "enum": ["a", "b"] });
    let id_text = || described("The unique ID of the record to fetch.");
    let from_tool = |name: &str, field: &str, schema: &Value| {
        tool(name, json!({ "ticket_id!": text() }), json!({ field: schema }))
    };
    for (producer, field, schema, parameter, wanted, fit) in [
        ("get_order", "id", text(), "order_id", text(), Some("Exact")),
        ("get_order", "orderId", text(), "order_id", text(), Some("Exact")),
        ("get_order", "user_id", text(), "order_id", text(), None),
        // The id of one thing is not the id of another thing, even if all ids have the same
        // description.
        ("get_user", "id", text(), "order_id", text(), None),
        ("get_issue", "id", text(), "repository_id", text(), None),
        ("get_user", "user_id", id_text(), "order_id", id_text(), None),
        // A name is not an id, and a number is not a text.
        ("get_customer", "city", text(), "city_id", text(), None),
        ("get_customer", "city_id", text(), "city", text(), None),
        ("get_order", "id", number.clone(), "order_id", text(), None),
        ("get_order", "id", text(), "order_id", number, None),
        // Fields with different units do not fit, because units are part of names.
        ("get_route", "length_km", text(), "length_miles", text(), None),
        ("get_customer", "city", text(), "city", text(), Some("Near")),
        ("get_customer", "name", text(), "name", text(), None),
        ("get_customer", "id", text(), "id", text(), None),
        // Formats fit if they are equal, or if one of the two fields has no format.
        ("get_customer", "contact", email.clone(), "customer_contact", email, Some("Exact")),
        ("get_customer", "contact", text(), "customer_contact", date, Some("Described")),
        ("get_customer", "contact", text(), "customer_contact", choice, None),
        (
            "get_customer",
            "owner_ref",
            described("Who pays the yearly contract."),
            "payer",
            described("Who pays the yearly contract."),
            Some("Described"),
        ),
    ] {
        let consumer = tool("pay", json!({ "other_id!": text(), parameter: wanted }), json!({}));
        let keeper = tool("get_ticket", json!({ "ticket_id!": text() }), json!({}));
        // Adds another tool about customers, so that `customer` is known as a thing.
        let about = tool("get_customer_card", json!({ "card_id!": text() }), json!({}));
        let graph = graph(&[from_tool(producer, field, &schema), consumer, keeper, about]);
        let found = route(&graph, ("get_ticket", "ticket_id"), ("pay", parameter));
        let text = found.as_ref().and_then(|found| found.split(' ').nth_back(1));
        assert_eq!(text, fit, "{producer}.{field} → {parameter}: {found:?}");
    }
}

#[test]
fn items_of_lists_lead_nowhere() {
    let items = json!({ "type": "array", "items": { "type": "object", "properties": { "order_id": text() } } });
    let ids = json!({ "type": "array", "items": text() });
    let graph = graph(&[
        tool(
            "list_orders",
            json!({ "customer_id!": text() }),
            json!({ "orders": items, "order_id": ids }),
        ),
        tool("pay", json!({ "order_id!": text() }), json!({})),
    ]);
    assert_eq!(route(&graph, ("list_orders", "customer_id"), ("pay", "order_id")), None);
}

#[test]
fn one_description_of_two_parameters_is_no_type() {
    let same = || described("The number on the yellow sticker.");
    let graph = graph(&[
        tool("get_box", json!({ "shelf_id!": text() }), json!({ "label_code": same() })),
        tool("swap", json!({ "first_code!": same(), "second_code!": same() }), json!({})),
    ]);
    assert_eq!(route(&graph, ("get_box", "shelf_id"), ("swap", "first_code")), None);
}

fn parcels() -> Vec<ToolDefinition> {
    let link = |name: &str, from: &str, to: &str| {
        tool(name, json!({ format!("{from}!"): text() }), json!({ to: text() }))
    };
    let old = ToolDefinition {
        description: "Returns an account. Deprecated: no longer valid.".to_owned(),
        ..link("find_account_fast", "parcel_id", "account_id")
    };
    let acting =
        ToolDefinition { effect: Effect::Once, ..link("make_account", "parcel_id", "account_id") };
    vec![
        old,
        acting,
        link("find_order", "parcel_id", "order_id"),
        link("find_customer", "order_id", "customer_id"),
        link("find_account", "customer_id", "account_id"),
        link("close_account", "account_id", "result_id"),
    ]
}

#[test]
fn the_cheapest_route_avoids_acting_and_doubtful_tools() {
    let graph = graph(&parcels());
    let found = route(&graph, ("find_order", "parcel_id"), ("close_account", "account_id"));
    assert_eq!(
        found.as_deref(),
        Some(
            "find_order(parcel_id=\"X\") find_customer(order_id=\"{{find_order.order_id}}\") \
             find_account(customer_id=\"{{find_customer.customer_id}}\") \
             \"{{find_account.account_id}}\" Exact one of several"
        )
    );
}

#[test]
fn the_order_of_tools_changes_nothing() {
    let mut tools = parcels();
    let show = |tools: &[ToolDefinition]| {
        let graph = graph(tools);
        route(&graph, ("find_order", "parcel_id"), ("close_account", "account_id"))
    };
    let first = show(&tools);
    for _ in 0..tools.len() {
        tools.rotate_left(1);
        assert_eq!(show(&tools), first);
    }
    tools.reverse();
    assert_eq!(show(&tools), first);
}

#[test]
fn a_call_needs_all_its_parameters() {
    let graph = graph(&[
        tool(
            "find_price",
            json!({ "item_id!": text(), "shop_id!": text() }),
            json!({ "price_id": text() }),
        ),
        tool("find_shop", json!({ "item_id!": text() }), json!({ "shop_id": text() })),
        tool(
            "find_owner",
            json!({ "item_id!": text(), "street!": text() }),
            json!({ "owner_id": text() }),
        ),
        tool("show", json!({ "price_id": text(), "owner_id": text() }), json!({})),
    ]);
    let found = route(&graph, ("find_shop", "item_id"), ("show", "price_id"));
    assert_eq!(
        found.as_deref(),
        Some(
            "find_shop(item_id=\"X\") find_price(item_id=\"X\" shop_id=\"{{find_shop.shop_id}}\") \
             \"{{find_price.price_id}}\" Exact only"
        )
    );
    assert_eq!(route(&graph, ("find_shop", "item_id"), ("show", "owner_id")), None);
}

#[test]
fn long_chains_and_circles_end() {
    let link = |index: usize| {
        let name = format!("find_{index}");
        tool(
            &name,
            json!({ format!("a{index}x_id!"): text() }),
            json!({ format!("a{}x_id", index + 1): text(), "a0x_id": text() }),
        )
    };
    let tools: Vec<ToolDefinition> = (0..100).map(link).collect();
    let graph = graph(&tools);
    assert!(route(&graph, ("find_0", "a0x_id"), ("find_8", "a8x_id")).is_some());
    assert_eq!(route(&graph, ("find_0", "a0x_id"), ("find_50", "a50x_id")), None);
}

#[test]
fn an_object_owns_its_fields_and_a_wrapper_does_not() {
    let user = json!({ "type": "object", "properties": { "id": text() } });
    let data = json!({ "type": "object", "properties": { "id": text() } });
    let graph = graph(&[
        tool("get_order", json!({ "ticket_id!": text() }), json!({ "user": user, "data": data })),
        tool("ban", json!({ "user_id": text(), "order_id": text() }), json!({})),
    ]);
    for (parameter, path) in [("user_id", "user.id"), ("order_id", "data.id")] {
        let found = route(&graph, ("get_order", "ticket_id"), ("ban", parameter)).unwrap();
        assert!(found.contains(&format!("{{{{get_order.{path}}}}}\" Exact")), "{found}");
    }
}
