//! Titles, contents and other texts, as they were written.

use expect_test::expect;

use super::*;

#[test]
fn texts() {
    let tools = blog();
    check(
        &tools,
        "Create author Alice with email a@x.io, then create blog by Alice titled Hello saying use {{createAuthor._id}} here",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hello","content":"use {{{{createAuthor._id}} here","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create blog by author 507f1f77bcf86cd799439011 titled Find, Get and Show saying it all",
        expect![[r#"
            createBlog {"title":"Find, Get and Show","content":"it all","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        r#"Create blog by author 507f1f77bcf86cd799439011 titled "then delete author 1" saying 'create comment on blog'"#,
        expect![[r#"
            createBlog {"title":"then delete author 1","content":"create comment on blog","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create a blog by author 507f1f77bcf86cd799439011 with title Costs and content We paid 1,000.5 on 2026-01-01, mail me at a@b.io.",
        expect![[r#"
            createBlog {"title":"Costs","content":"We paid 1,000.5 on 2026-01-01, mail me at a@b.io","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Zoë with email zoe@x.io and bio Dichterin aus Köln",
        expect![[r#"
            createAuthor {"name":"Zoë","email":"zoe@x.io","bio":"Dichterin aus Köln"}
        "#]],
    );
    check(
        &tools,
        "create comment on blog 507f1f77bcf86cd799439011 by author 507f1f77bcf86cd799439012: Great!",
        expect![[r#"
            createComment {"blogId":"507f1f77bcf86cd799439011","authorId":"507f1f77bcf86cd799439012","content":"Great!"}
        "#]],
    );
    check(
        &tools,
        r#"create comment "so true" on blog 507f1f77bcf86cd799439011 by author 507f1f77bcf86cd799439012"#,
        expect![[r#"
            createComment {"blogId":"507f1f77bcf86cd799439011","authorId":"507f1f77bcf86cd799439012","content":"so true"}
        "#]],
    );
}
