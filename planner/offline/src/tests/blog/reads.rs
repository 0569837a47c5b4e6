//! What only looks.

use expect_test::expect;

use super::*;

#[test]
fn reads() {
    let tools = blog();
    check(
        &tools,
        "list all authors",
        expect![[r#"
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "show me all blogs and all authors",
        expect![[r#"
        listBlogs {}
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "get all blog posts",
        expect![[r#"
        listBlogs {}
    "#]],
    );
    check(
        &tools,
        "Show all the authors, please",
        expect![[r#"
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011",
        expect![[r#"
        getBlog {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "Show me the author with id 507f1f77bcf86cd799439011",
        expect![[r#"
        getAuthor {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "fetch comment 507f1f77bcf86cd799439011",
        expect![[r#"
        getComment {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "list the comments of blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "show all pictures for blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listPicturesByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "what are the comments on blog 507f1f77bcf86cd799439011?",
        expect![[r#"
            listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "get blogs 507f1f77bcf86cd799439011 and 507f1f77bcf86cd799439012",
        expect![[r#"
        getBlog = getBlog {"id":"507f1f77bcf86cd799439011"}
        getBlog_2 = getBlog {"id":"507f1f77bcf86cd799439012"}
    "#]],
    );
}
