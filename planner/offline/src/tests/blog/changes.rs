//! What changes or deletes something.

use expect_test::expect;

use super::*;

#[test]
fn changes() {
    let tools = blog();
    check(
        &tools,
        "delete author with id 507f1f77bcf86cd799439011",
        expect![[r#"
        deleteAuthor {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "remove comment 507f1f77bcf86cd799439011",
        expect![[r#"
        deleteComment {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "update author 507f1f77bcf86cd799439011 set name to Zed",
        expect![[r#"
        updateAuthor {"id":"507f1f77bcf86cd799439011","name":"Zed"}
    "#]],
    );
    check(
        &tools,
        "rename author 507f1f77bcf86cd799439011 to Zed",
        expect![[r#"
        updateAuthor {"id":"507f1f77bcf86cd799439011","name":"Zed"}
    "#]],
    );
    check(
        &tools,
        "change the title of blog 507f1f77bcf86cd799439011 to New Title",
        expect![[r#"
            updateBlog {"id":"507f1f77bcf86cd799439011","title":"New Title"}
        "#]],
    );
    check(
        &tools,
        "update the blog 507f1f77bcf86cd799439011 with title New and content Newer",
        expect![[r#"
            updateBlog {"id":"507f1f77bcf86cd799439011","title":"New","content":"Newer"}
        "#]],
    );
    check(
        &tools,
        "set the email of author 507f1f77bcf86cd799439011 to z@x.io",
        expect![[r#"
            updateAuthor {"id":"507f1f77bcf86cd799439011","email":"z@x.io"}
        "#]],
    );
    check(
        &tools,
        "change author 507f1f77bcf86cd799439011's bio to Likes tea",
        expect![[r#"
            updateAuthor {"id":"507f1f77bcf86cd799439011","bio":"Likes tea"}
        "#]],
    );
}
