//! Sentences of new users that were planned wrongly once.

use expect_test::expect;

use super::*;

fn text() -> Value {
    json!({ "type": "string" })
}

fn reads(mut tool: ToolDefinition, output: Value) -> ToolDefinition {
    tool.effect = Effect::Read;
    tool.output_schema = Some(json!({ "type": "object", "properties": output }));
    tool
}

/// A shop, files, issues and a mailer.
fn office() -> Catalog {
    let issue = json!({ "number": { "type": "integer" }, "title": text(), "body": text() });
    catalog(vec![
        reads(
            tool("getStock", "Get the stock of an article.", json!({ "sku!": text() })),
            json!({ "sku": text(), "pieces": { "type": "integer" } }),
        ),
        tool(
            "reserve",
            "Reserve pieces of an article.",
            json!({ "sku!": text(), "pieces!": { "type": "integer" } }),
        ),
        reads(
            tool("find_customer", "Find a customer by name.", json!({ "name!": text() })),
            json!({ "id": text(), "name": text(), "email": text() }),
        ),
        tool(
            "send_mail",
            "Send a mail.",
            json!({ "to!": { "type": "string", "format": "email" }, "subject": text(), "body!": text() }),
        ),
        reads(
            tool(
                "get_blog",
                "Get a blog post.",
                json!({ "id!": { "type": "string", "description": "The `_id` of the blog post." } }),
            ),
            json!({ "_id": text(), "title": text(), "content": text() }),
        ),
        reads(
            tool("read_file", "Read a file.", json!({ "path!": text() })),
            json!({ "content": text() }),
        ),
        tool("append_file", "Append text to a file.", json!({ "path!": text(), "text!": text() })),
        reads(
            tool(
                "get_issue",
                "Get an issue.",
                json!({ "owner!": text(), "repo!": text(), "number!": { "type": "integer" } }),
            ),
            issue,
        ),
        tool(
            "add_comment",
            "Comment on an issue.",
            json!({ "owner!": text(), "repo!": text(), "number!": { "type": "integer" }, "body!": text() }),
        ),
    ])
}

#[test]
fn sentences_of_new_users() {
    let tools = office();
    check(&tools, "Check the stock of tea and reserve 2 of them", expect![[""]]);
    check(&tools, "Find customer ada, then send a mail to her", expect![[""]]);
    check(&tools, "Find customer ada, then send a mail to her with body Hello", expect![[""]]);
    check(&tools, "Reserve 2 pieces of tea", expect![[""]]);
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011 and email its title to sam@x.com",
        expect![[""]],
    );
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011 and mail its title to sam@x.com",
        expect![[""]],
    );
    check(&tools, "read a.txt and b.txt and email both to sam@x.com", expect![[""]]);
    check(&tools, "get issue 7 of acme/site and comment on it saying thanks", expect![[""]]);
    check(&tools, "append the following text to log.txt", expect![[""]]);
    check(&tools, "append hello to log.txt", expect![[""]]);
    check(&tools, "send an email to sam@x.com with the body of issue 7", expect![[""]]);
    check(&tools, "send a mail to sam@x.com with the body of issue 7", expect![[""]]);
}
