//! Toolsets of other kinds: nothing in the planner knows any of them.

use expect_test::expect;

use super::*;

fn string() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "number" })
}

/// Sums, with an output schema.
fn maths() -> Catalog {
    let of = |name: &str, what: &str| {
        let mut tool = tool(name, what, json!({ "a!": number(), "b!": number() }));
        tool.output_schema =
            Some(json!({ "type": "object", "properties": { "result": { "type": "number" } } }));
        tool.effect = Effect::Read;
        tool
    };
    let mut total = tool(
        "average",
        "Average a list of numbers.",
        json!({ "numbers!": { "type": "array", "items": { "type": "number" } } }),
    );
    total.output_schema = Some(json!({ "type": "number" }));
    total.effect = Effect::Read;
    catalog(vec![
        of("add", "Add two numbers."),
        of("subtract", "Subtract the second number from the first."),
        of("multiply", "Multiply two numbers."),
        of("divide", "Divide the first number by the second."),
        total,
    ])
}

/// Files and folders.
fn files() -> Catalog {
    catalog(vec![
        tool("read_file", "Read a file from the disk.", json!({ "path!": string() })),
        tool(
            "write_file",
            "Write text to a file.",
            json!({ "path!": string(), "content!": string() }),
        ),
        tool("delete_file", "Delete a file.", json!({ "path!": string() })),
        tool("copy_file", "Copy a file.", json!({ "source!": string(), "destination!": string() })),
        tool("list_directory", "List the files in a directory.", json!({ "path!": string() })),
    ])
}

/// A shop whose identifiers are numbers, and a calendar, a mailer and the weather.
fn office() -> Catalog {
    let whole = || json!({ "type": "integer" });
    let mut weather = tool(
        "get_weather",
        "Get the weather for a city.",
        json!({ "city!": string(), "day": string(), "units": { "enum": ["metric", "imperial"] } }),
    );
    weather.effect = Effect::Read;
    let mut add = tool(
        "add_product",
        "Add a product to the shop.",
        json!({ "name!": string(), "price!": number(), "tags": { "type": "array", "items": { "type": "string" } }, "in_stock": { "type": "boolean" } }),
    );
    add.output_schema = Some(json!({ "properties": { "product_id": { "type": "integer" } } }));
    catalog(vec![
        add,
        tool("get_product", "Get a product.", json!({ "product_id!": whole() })),
        tool("list_products", "List products.", json!({ "category": string() })),
        tool(
            "search_products",
            "Search products by words.",
            json!({ "query!": string(), "limit": whole() }),
        ),
        tool(
            "place_order",
            "Order a product for a customer.",
            json!({ "product_id!": whole(), "quantity!": whole(), "customer_email!": string() }),
        ),
        tool(
            "cancel_order",
            "Cancel an order.",
            json!({ "order_id!": whole(), "reason": string() }),
        ),
        tool(
            "update_order_status",
            "Update the status of an order.",
            json!({ "order_id!": whole(), "status!": { "enum": ["open", "shipped", "on_hold"] } }),
        ),
        tool(
            "create_event",
            "Create a calendar event or meeting.",
            json!({ "title!": string(), "date!": { "type": "string", "format": "date" }, "attendees": { "type": "array", "items": { "type": "string", "format": "email" } }, "location": string() }),
        ),
        tool(
            "send_email",
            "Send an email.",
            json!({ "to!": { "type": "string", "format": "email" }, "subject!": string(), "body!": string() }),
        ),
        weather,
        tool(
            "translate_text",
            "Translate text into another language.",
            json!({ "text!": string(), "target_language!": string() }),
        ),
        tool("flow.sleep", "Wait for some time.", json!({ "seconds!": number() })),
        tool("flow.echo", "Return its parameters.", json!({ "value": {} })),
    ])
}

/// A zoo of naming styles: kebab-case, `$ref` and nullable types.
fn pets() -> Catalog {
    let mut add = tool(
        "add-pet",
        "Add a pet to the store.",
        json!({ "name!": string(), "species!": { "$ref": "#/$defs/Species" }, "age": { "type": ["integer", "null"] }, "ownerId": string() }),
    );
    add.input_schema["$defs"] = json!({ "Species": { "type": "string", "enum": ["cat", "dog"] } });
    add.output_schema =
        Some(json!({ "properties": { "pet": { "properties": { "id": string() } } } }));
    catalog(vec![
        add,
        tool(
            "find-pets-by-status",
            "Find pets by their status.",
            json!({ "status!": { "enum": ["available", "sold"] } }),
        ),
        tool("get-pet", "Get a pet.", json!({ "petId!": string() })),
        tool(
            "register-owner",
            "Register the owner of a pet.",
            json!({ "name!": string(), "phone": string() }),
        ),
        tool("feed-pet", "Feed a pet.", json!({ "petId!": string(), "food!": string() })),
    ])
}

#[test]
fn maths_chain() {
    let tools = maths();
    check(
        &tools,
        "add 3 and 4, then multiply the result by 5",
        expect![[r#"
        add {"a":3,"b":4}
        multiply {"a":"{{add.result}}","b":5}
    "#]],
    );
    check(
        &tools,
        "Add 3 and 4 and then divide it by 2",
        expect![[r#"
        add {"a":3,"b":4}
        divide {"a":"{{add.result}}","b":2}
    "#]],
    );
    check(
        &tools,
        "subtract 3 from 10",
        expect![[r#"
        subtract {"a":10,"b":3}
    "#]],
    );
    check(
        &tools,
        "divide 1,000.5 by -4",
        expect![[r#"
        divide {"a":1000.5,"b":-4}
    "#]],
    );
    check(
        &tools,
        "Multiply two and three",
        expect![[r#"
        multiply {"a":2,"b":3}
    "#]],
    );
    check(
        &tools,
        "add 1 and 2, multiply the result by 3, then subtract 4 from the result",
        expect![[r#"
            add {"a":1,"b":2}
            multiply {"a":"{{add.result}}","b":3}
            subtract {"a":"{{multiply.result}}","b":4}
        "#]],
    );
    check(
        &tools,
        "average 1, 2 and 3.5",
        expect![[r#"
        average {"numbers":[1,2,3.5]}
    "#]],
    );
    check(
        &tools,
        "what is the average of 2 and 4?",
        expect![[r#"
        average {"numbers":[2,4]}
    "#]],
    );
    check(
        &tools,
        "add 3",
        expect![[r#"
        no plan: `b` of `add` is missing in `add 3`: add `with b 42`, a number
        nearest: add
    "#]],
    );
    check(
        &tools,
        "please add 3 and add 4",
        expect![[r#"
        no plan: `b` of `add` is missing in `add 3`: add `with b 42`, a number;
          `b` of `add` is missing in `add 4`: add `with b 42`, a number
        nearest: add
    "#]],
    );
    check(
        &tools,
        "calculate the square root of 9",
        expect![[r#"
            no plan: no tool fits `calculate the square root of 9`: begin the clause with what to do and what with (`faber tools list` shows what there is)
            nearest: 
        "#]],
    );
}

#[test]
fn files_and_folders() {
    let tools = files();
    check(
        &tools,
        "read notes.txt",
        expect![[r#"
        read_file {"path":"notes.txt"}
    "#]],
    );
    check(
        &tools,
        "Read the file /tmp/a.txt, then delete it",
        expect![[r#"
            read_file {"path":"/tmp/a.txt"}
            delete_file {"path":"/tmp/a.txt"} after "read_file"
        "#]],
    );
    check(
        &tools,
        r#"write "hello, world" to notes.txt"#,
        expect![[r#"
        write_file {"path":"notes.txt","content":"hello, world"}
    "#]],
    );
    check(
        &tools,
        "create a file notes.txt with content Hello there",
        expect![[r#"
        write_file {"path":"notes.txt","content":"Hello there"}
    "#]],
    );
    check(
        &tools,
        "copy a.txt to b/c.txt",
        expect![[r#"
        copy_file {"source":"a.txt","destination":"b/c.txt"}
    "#]],
    );
    check(
        &tools,
        "list the files in /tmp",
        expect![[r#"
        list_directory {"path":"/tmp"}
    "#]],
    );
    check(
        &tools,
        "show the files in directory /var/log",
        expect![[r#"
            list_directory {"path":"/var/log"}
        "#]],
    );
    check(
        &tools,
        "read the file",
        expect![[r#"
        no plan: `path` of `read_file` is missing in `read the file`: add `with path …`
        nearest: read_file
    "#]],
    );
    check(
        &tools,
        "delete a.txt and b.txt",
        expect![[r#"
            delete_file = delete_file {"path":"a.txt"}
            delete_file_2 = delete_file {"path":"b.txt"}
        "#]],
    );
    check(
        &tools,
        r#"remove the file "my notes.md""#,
        expect![[r#"
            delete_file {"path":"my notes.md"}
        "#]],
    );
}

#[test]
fn shop() {
    let tools = office();
    check(
        &tools,
        "add product Lamp with price 20, tags red, small and new",
        expect![[r#"
        add_product {"name":"Lamp","price":20,"tags":["red","small","new"]}
    "#]],
    );
    check(
        &tools,
        r#"Add a product called "Desk Lamp" costing $1,299.50 that is in stock"#,
        expect![[r#"
            add_product {"name":"Desk Lamp","price":1299.5,"in_stock":true}
        "#]],
    );
    check(
        &tools,
        "get product 17",
        expect![[r#"
        get_product {"product_id":17}
    "#]],
    );
    check(
        &tools,
        "search for red lamps",
        expect![[r#"
            search_products {"query":"red lamps"}
        "#]],
    );
    check(
        &tools,
        "find products",
        expect![[r#"
        list_products {}
    "#]],
    );
    check(
        &tools,
        "list all products",
        expect![[r#"
        list_products {}
    "#]],
    );
    check(
        &tools,
        "order 2 units of product 17 for bob@x.io",
        expect![[r#"
            place_order {"product_id":17,"quantity":2,"customer_email":"bob@x.io"}
        "#]],
    );
    check(
        &tools,
        "add product Lamp with price 20, then order 3 of it for bob@x.io",
        expect![[r#"
        add_product {"name":"Lamp","price":20}
        place_order {"product_id":"{{add_product.product_id}}","quantity":3,"customer_email":"bob@x.io"}
    "#]],
    );
    check(
        &tools,
        "cancel order 5 with reason too late",
        expect![[r#"
        cancel_order {"order_id":5,"reason":"too late"}
    "#]],
    );
    check(
        &tools,
        "update the status of order 5 to shipped",
        expect![[r#"
        update_order_status {"order_id":5,"status":"shipped"}
    "#]],
    );
    check(
        &tools,
        "set order 5 to on hold",
        expect![[r#"
        update_order_status {"order_id":5,"status":"on_hold"}
    "#]],
    );
    check(
        &tools,
        "mark order 5 as lost",
        expect![[r#"
        no plan: `lost` in `mark order 5 as lost` does not fit `status` of `update_order_status`: give one of `open`, `shipped` or `on_hold`
        nearest: update_order_status
    "#]],
    );
}

#[test]
fn calendar_mail_and_weather() {
    let tools = office();
    check(
        &tools,
        "schedule a meeting titled Standup on 2026-03-01 with alice@x.com and bob@x.com",
        expect![[r#"
            create_event {"title":"Standup","date":"2026-03-01","attendees":["alice@x.com","bob@x.com"]}
        "#]],
    );
    check(
        &tools,
        "create an event Lunch on 2026-03-01 in Paris",
        expect![[r#"
        create_event {"title":"Lunch","date":"2026-03-01","location":"Paris"}
    "#]],
    );
    check(
        &tools,
        "create an event Lunch tomorrow",
        expect![[r#"
            no plan: `tomorrow` in `create an event Lunch tomorrow` does not fit `date` of `create_event`: give an ISO date such as `2026-01-31`
            nearest: create_event
        "#]],
    );
    check(
        &tools,
        "send an email to bob@x.com with subject Hi saying hello, how are you",
        expect![[r#"
            send_email {"to":"bob@x.com","subject":"Hi","body":"hello, how are you"}
        "#]],
    );
    check(
        &tools,
        "email bob@x.com saying hello",
        expect![[r#"
            no plan: `subject` of `send_email` is missing in `email bob@x.com saying hello`: add `titled …`
            nearest: send_email
        "#]],
    );
    check(
        &tools,
        "what's the weather in Paris tomorrow",
        expect![[r#"
        get_weather {"city":"Paris","day":"tomorrow"}
    "#]],
    );
    check(
        &tools,
        "get the weather for New York in imperial units",
        expect![[r#"
        get_weather {"city":"New York","units":"imperial"}
    "#]],
    );
    check(
        &tools,
        "What is the weather like in San Francisco?",
        expect![[r#"
        get_weather {"city":"San Francisco"}
    "#]],
    );
    check(
        &tools,
        "weather in Oslo",
        expect![[r#"
        get_weather {"city":"Oslo"}
    "#]],
    );
    check(
        &tools,
        r#"translate "good morning" to French"#,
        expect![[r#"
        translate_text {"text":"good morning","target_language":"French"}
    "#]],
    );
    check(
        &tools,
        "wait 5 seconds",
        expect![[r#"
            flow.sleep {"seconds":5}
        "#]],
    );
    check(
        &tools,
        "get the weather in Paris, then send an email to bob@x.io with subject Weather and body the result",
        expect![[r#"
            get_weather {"city":"Paris"}
            send_email {"to":"bob@x.io","subject":"Weather","body":"{{get_weather}}"}
        "#]],
    );
}

#[test]
fn pets_in_kebab_case() {
    let tools = pets();
    check(
        &tools,
        "add a dog named Rex",
        expect![[r#"
            add-pet {"name":"Rex","species":"dog"}
        "#]],
    );
    check(
        &tools,
        "register owner Ann, then add a cat called Tom, age 3, for that owner",
        expect![[r#"
            register-owner {"name":"Ann"}
            add-pet {"name":"Tom","species":"cat","age":3,"ownerId":"{{register-owner.id}}"}
        "#]],
    );
    check(
        &tools,
        "find available pets",
        expect![[r#"
            find-pets-by-status {"status":"available"}
        "#]],
    );
    check(
        &tools,
        "find pets with status sold",
        expect![[r#"
        find-pets-by-status {"status":"sold"}
    "#]],
    );
    check(
        &tools,
        "add a cat Tom, then feed it with fish",
        expect![[r#"
            add-pet {"name":"Tom","species":"cat"}
            feed-pet {"petId":"{{add-pet.pet.id}}","food":"fish"}
        "#]],
    );
    check(
        &tools,
        "get pet p-17",
        expect![[r#"
        get-pet {"petId":"p-17"}
    "#]],
    );
    check(
        &tools,
        "feed pet p-17 fish",
        expect![[r#"
        feed-pet {"petId":"p-17","food":"fish"}
    "#]],
    );
}

#[test]
fn more_of_the_office() {
    let tools = office();
    check(
        &tools,
        "add products Lamp, Desk and Chair with price 20",
        expect![[r#"
        add_product = add_product {"name":"Lamp","price":20}
        add_product_2 = add_product {"name":"Desk","price":20}
        add_product_3 = add_product {"name":"Chair","price":20}
    "#]],
    );
    check(
        &tools,
        "what's the weather in Paris and in London",
        expect![[r#"
            get_weather = get_weather {"city":"Paris"}
            get_weather_2 = get_weather {"city":"London"}
        "#]],
    );
    check(
        &tools,
        "search for lamps, limit 5",
        expect![[r#"
        search_products {"query":"lamps","limit":5}
    "#]],
    );
    check(
        &tools,
        "schedule a meeting Planning on 2026-03-01 at Berlin office with bob@x.com, then send an email to bob@x.com with subject Planning saying see you there",
        expect![[r#"
            create_event {"title":"Planning","date":"2026-03-01","attendees":["bob@x.com"],"location":"Berlin office"}
            send_email {"to":"bob@x.com","subject":"Planning","body":"see you there"} after "create_event"
        "#]],
    );
    check(
        &tools,
        "cancel orders 5 and 6",
        expect![[r#"
        cancel_order = cancel_order {"order_id":5}
        cancel_order_2 = cancel_order {"order_id":6}
    "#]],
    );
    check(
        &tools,
        "Find products in category garden",
        expect![[r#"
        list_products {"category":"garden"}
    "#]],
    );
    check(
        &tools,
        "add product Lamp with price cheap",
        expect![[r#"
        no plan: `cheap` in `add product Lamp with price cheap` does not fit `price` of `add_product`: give a number
        nearest: add_product
    "#]],
    );
    check(
        &tools,
        "add product Lamp with price 20, not in stock",
        expect![[r#"
        add_product {"name":"Lamp","price":20,"in_stock":false}
    "#]],
    );
    check(
        &tools,
        "send email to bob@x.io, subject: Hi, body: Dear Bob, all is well.",
        expect![[r#"
            send_email {"to":"bob@x.io","subject":"Hi","body":"Dear Bob, all is well"}
        "#]],
    );
    check(
        &tools,
        "translate hello world to German",
        expect![[r#"
        translate_text {"text":"hello world","target_language":"German"}
    "#]],
    );
    check(
        &tools,
        "order product 17",
        expect![[r#"
        no plan: `quantity` of `place_order` is missing in `order product 17`: add `with quantity 42`, a number;
          `customer_email` of `place_order` is missing: add `with customer_email somebody@example.com`
        nearest: place_order
    "#]],
    );
}

#[test]
fn more_maths() {
    let tools = maths();
    check(
        &tools,
        "what is 3 plus 4?",
        expect![[r#"
            no plan: no tool fits `what is 3 plus 4`: begin the clause with what to do and what with (`faber tools list` shows what there is)
            nearest: 
        "#]],
    );
    check(
        &tools,
        "add 3 to 4 and multiply it by 2 then divide the result by 7",
        expect![[r#"
        add {"a":3,"b":4}
        multiply {"a":"{{add.result}}","b":2}
        divide {"a":"{{multiply.result}}","b":7}
    "#]],
    );
    check(
        &tools,
        "multiply 2 by 3, add 4 and 5, then average 1, 2 and 3",
        expect![[r#"
        multiply {"a":2,"b":3}
        add {"a":4,"b":5}
        average {"numbers":[1,2,3]} after "add"
    "#]],
    );
    check(
        &tools,
        "Compute the average of 10, 20 and 30, then subtract 5 from it",
        expect![[r#"
            average {"numbers":[10,20,30]}
            subtract {"a":"{{average}}","b":5}
        "#]],
    );
}
