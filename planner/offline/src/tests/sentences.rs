//! Sentences of new users that were planned wrongly once.

use expect_test::expect;

use super::*;

fn text_schema() -> Value {
    json!({ "type": "string" })
}

#[expect(clippy::needless_pass_by_value, reason = "`json!` is written in place")]
fn reads(mut tool: ToolDefinition, output: Value) -> ToolDefinition {
    tool.effect = Effect::Read;
    tool.output_schema = Some(json!({ "type": "object", "properties": output }));
    tool
}

#[expect(clippy::too_many_lines, reason = "a list of tools")]
fn office() -> Catalog {
    let issue =
        json!({ "number": { "type": "integer" }, "title": text_schema(), "body": text_schema() });
    catalog(vec![
        reads(
            tool("getStock", "Get the stock of an article.", json!({ "sku!": text_schema() })),
            json!({ "sku": text_schema(), "pieces": { "type": "integer" } }),
        ),
        tool(
            "reserve",
            "Reserve pieces of an article.",
            json!({ "sku!": text_schema(), "pieces!": { "type": "integer" } }),
        ),
        reads(
            tool("find_customer", "Find a customer by name.", json!({ "name!": text_schema() })),
            json!({ "id": text_schema(), "name": text_schema(), "email": text_schema() }),
        ),
        tool(
            "send_mail",
            "Send a mail.",
            json!({
                "to!": { "type": "string", "format": "email" },
                "subject": text_schema(),
                "body!": text_schema(),
            }),
        ),
        reads(
            tool(
                "get_blog",
                "Get a blog post.",
                json!({
                    "id!": { "type": "string", "description": "The `_id` of the blog post." },
                }),
            ),
            json!({ "_id": text_schema(), "title": text_schema(), "content": text_schema() }),
        ),
        reads(
            tool("read_file", "Read a file.", json!({ "path!": text_schema() })),
            json!({ "content": text_schema() }),
        ),
        reads(tool("get_time", "Get the time.", json!({})), json!({})),
        reads(
            tool(
                "get_price",
                "Get the price of an article in cents",
                json!({ "article!": text_schema() }),
            ),
            json!({}),
        ),
        tool(
            "append_file",
            "Append text to a file.",
            json!({ "path!": text_schema(), "text!": text_schema() }),
        ),
        reads(
            tool(
                "get_issue",
                "Get an issue.",
                json!({
                    "owner!": text_schema(),
                    "repo!": text_schema(),
                    "number!": { "type": "integer" },
                }),
            ),
            issue,
        ),
        tool(
            "add_comment",
            "Comment on an issue.",
            json!({
                "owner!": text_schema(),
                "repo!": text_schema(),
                "number!": { "type": "integer" },
                "body!": text_schema(),
            }),
        ),
    ])
}

#[test]
#[expect(clippy::too_many_lines, reason = "one query after the other")]
fn sentences_of_new_users() {
    let tools = office();
    check(
        &tools,
        "Check the stock of tea and reserve 2 of them",
        expect![[r"
        no plan: `sku` of `getStock` is missing in `Check the stock of tea`: add `with sku …`
    "]],
    );
    check(
        &tools,
        "Find customer ada, then send a mail to her",
        expect![[r"
        no plan: `body` of `send_mail` is missing in `send a mail to her`: add `with body …`
    "]],
    );
    check(
        &tools,
        "Find customer ada, then send a mail to her with body Hello",
        expect![[r#"
        find_customer {"name":"ada"}
        send_mail {"to":"{{find_customer.email}}","body":"Hello"}
    "#]],
    );
    check(
        &tools,
        "Reserve 2 pieces of tea",
        expect![[r"
        no plan: `sku` of `reserve` is missing in `Reserve 2 pieces of tea`: add `with sku …`
    "]],
    );
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011 and email its title to sam@x.com",
        expect![[r#"
            get_blog {"id":"507f1f77bcf86cd799439011"}
            send_mail {"to":"sam@x.com","body":"{{get_blog.title}}"}
        "#]],
    );
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011 and mail its title to sam@x.com",
        expect![[r#"
            get_blog {"id":"507f1f77bcf86cd799439011"}
            send_mail {"to":"sam@x.com","body":"{{get_blog.title}}"}
        "#]],
    );
    check(
        &tools,
        "read a.txt and b.txt and email both to sam@x.com",
        expect![[r"
        no plan: `body` of `send_mail` is missing in `email both to sam@x.com`: add `with body …`
    "]],
    );
    check(
        &tools,
        "get issue 7 of acme/site and comment on it saying thanks",
        expect![[r#"
        get_issue {"owner":"acme","repo":"site","number":7}
        add_comment {"owner":"acme","repo":"site","number":7,"body":"thanks"} after "get_issue"
    "#]],
    );
    check(
        &tools,
        "append the following text to log.txt",
        expect![[r"
        no plan: `text` of `append_file` is missing in `append the following text to log.txt`: add `with text …`
    "]],
    );
    check(
        &tools,
        "append hello to log.txt",
        expect![[r#"
        append_file {"path":"log.txt","text":"hello"}
    "#]],
    );
    check(
        &tools,
        "send an email to sam@x.com with the body of issue 7",
        expect![[r"
        no plan: `body` of `send_mail` is missing in `send an email to sam@x.com with the body of issue 7`: add `with body …`
    "]],
    );
    check(
        &tools,
        "send a mail to sam@x.com with the body of issue 7",
        expect![[r"
        no plan: `body` of `send_mail` is missing in `send a mail to sam@x.com with the body of issue 7`: add `with body …`
    "]],
    );
    check(
        &tools,
        "Tell the time",
        expect![[r"
        get_time {}
    "]],
    );
    check(
        &tools,
        "Get the price of tea",
        expect![[r#"
        get_price {"article":"tea"}
    "#]],
    );
}
