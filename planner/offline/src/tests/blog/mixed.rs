//! Several things at once, in the words that people use.

use expect_test::expect;

use super::*;

#[test]
fn more_paraphrases() {
    let tools = blog();
    check(
        &tools,
        "please list comments on blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "post a comment on blog 507f1f77bcf86cd799439011 by author 507f1f77bcf86cd799439012 saying Nice, then delete it",
        expect![[r#"
            createComment {"blogId":"507f1f77bcf86cd799439011","authorId":"507f1f77bcf86cd799439012","content":"Nice"}
            deleteComment {"id":"{{createComment._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then write an essay by her titled X saying y",
        expect![[r#"
            no plan: no tool fits `write an essay by her titled X saying y`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createBlog`, `updateBlog`, `createAuthor`, `updateAuthor`, `createComment`)
            nearest: createBlog updateBlog createAuthor updateAuthor createComment
        "#]],
    );
    check(
        &tools,
        "Create an author. Her name is Alice and her email is alice@x.io.",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@x.io"}
        "#]],
    );
    check(
        &tools,
        "Add picture https://x.io/a.png to blog 507f1f77bcf86cd799439011",
        expect![[r#"
        createPicture {"blogId":"507f1f77bcf86cd799439011","url":"https://x.io/a.png"}
    "#]],
    );
    check(
        &tools,
        "write a blog entitled 'Why Rust?' by author 507f1f77bcf86cd799439011 with content: it's fast",
        expect![[r#"
            createBlog {"title":"Why Rust?","content":"it's fast","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create blog titled Hello, by author 507f1f77bcf86cd799439011, content world",
        expect![[r#"
            createBlog {"title":"Hello","content":"world","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email alice@test.com then create a blog by Alice titled Hello about world, create comment on the blog by Alice saying Nice, and add picture https://x.io/p.png to it",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com"}
            createBlog {"title":"Hello","content":"about world","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Nice"}
            createPicture {"blogId":"{{createBlog._id}}","url":"https://x.io/p.png"}
        "#]],
    );
    check(
        &tools,
        "For author 507f1f77bcf86cd799439011 create a blog titled X saying y",
        expect![[r#"
            no plan: `507f1f77bcf86cd799439011` in `For author 507f1f77bcf86cd799439011 create a blog titled X saying y` was not understood: put it between quotation marks if it is text, or leave it out;
              `blog` was not understood: put it between quotation marks if it is text, or leave it out
            nearest: createAuthor
        "#]],
    );
    check(
        &tools,
        "Create blog by Alice titled X saying y after you create author Alice with email a@x.io",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"X","content":"y","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        r#"Create author "Alice" with email "alice@x.io""#,
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@x.io"}
    "#]],
    );
    check(
        &tools,
        "create author Alice <alice@x.io>",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@x.io"}
    "#]],
    );
    check(
        &tools,
        "Create author:\nname: Alice\nemail: alice@x.io\n\nThen create blog:\ntitle: Hello, World\ncontent: Salt and pepper. Create joy.\n",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@x.io"}
            createBlog {"title":"Hello, World","content":"Salt and pepper. Create joy","authorId":"{{createAuthor._id}}"}
            warning[plan.assumed_parameter] tools[1].parameters.authorId: `authorId` was not given; assumed `{{createAuthor._id}}` (say which author is meant, by its name or its id)
        "#]],
    );
    check(
        &tools,
        "delete blog 507f1f77bcf86cd799439011 and comment 507f1f77bcf86cd799439012",
        expect![[r#"
            deleteBlog {"id":"507f1f77bcf86cd799439011"}
            deleteComment {"id":"507f1f77bcf86cd799439012"}
        "#]],
    );
    check(
        &tools,
        "list authors, blogs and comments of blog 507f1f77bcf86cd799439011",
        expect![[r#"
            listAuthors {}
            listBlogs {}
            listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io and create author Bob with email b@x.io, then create blog by Bob titled One saying first, and create comment on it by Alice saying Nice, Bob!",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"a@x.io"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"b@x.io"}
            createBlog {"title":"One","content":"first","authorId":"{{createAuthor_2._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Nice, Bob!"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice (a@x.io), create blog by Alice titled One saying first, create blog by Alice titled Two saying second, then comment on One by Alice saying Which is better?",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog = createBlog {"title":"One","content":"first","authorId":"{{createAuthor._id}}"}
            createBlog_2 = createBlog {"title":"Two","content":"second","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Which is better?"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice (a@x.io), create blog by Alice titled One saying first, create blog by Alice titled Two saying second, then comment on the blog by Alice saying hm",
        expect![[r#"
            no plan: `blogId` of `createComment` in `comment on the blog by Alice saying hm` may mean `One` or `Two`: say which by its name
            nearest: createComment
        "#]],
    );
    check(
        &tools,
        r#"Could you create an author named Alice Liddell with email alice@wonder.land, and after that publish a blog post titled "Down, down" by her about rabbit holes?"#,
        expect![[r#"
            createAuthor {"name":"Alice Liddell","email":"alice@wonder.land"}
            createBlog {"title":"Down, down","content":"about rabbit holes","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "show blog 507f1f77bcf86cd799439011 and its comments",
        expect![[r#"
            getBlog {"id":"507f1f77bcf86cd799439011"}
            listCommentsByBlog {"blogId":"{{getBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "update comment 507f1f77bcf86cd799439011 with content Better",
        expect![[r#"
        no plan: no tool fits `update comment 507f1f77bcf86cd799439011 with content Better`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createComment`, `getComment`, `deleteComment`, `listCommentsByBlog`, `updateBlog`)
        nearest: createComment getComment deleteComment listCommentsByBlog updateBlog
    "#]],
    );
    check(
        &tools,
        "create author Alice with email not-an-email",
        expect![[r#"
        no plan: `not-an-email` in `create author Alice with email not-an-email` does not fit `email` of `createAuthor`: give an e-mail address
        nearest: createAuthor
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then get her",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        getAuthor {"id":"{{createAuthor._id}}"}
    "#]],
    );
    check(
        &tools,
        "who are the authors?",
        expect![[r#"
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "rename blog 507f1f77bcf86cd799439011",
        expect![[r#"
        no plan: `rename blog 507f1f77bcf86cd799439011` says nothing that `updateBlog` could change: add `set … to …` with `title` or `content`
        nearest: updateBlog
    "#]],
    );
}
