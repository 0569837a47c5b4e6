//! Who and what is meant by a name, a pronoun, a number.

use expect_test::expect;

use super::*;

#[test]
fn references() {
    let tools = blog();
    check(
        &tools,
        "Create author Alice with email a@x.io, then rename her to Alicia",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            updateAuthor {"id":"{{createAuthor._id}}","name":"Alicia"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then create blog by her titled Hi saying hello, then change its title to Bye",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            updateBlog {"id":"{{createBlog._id}}","title":"Bye"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by her titled Hi saying hello, then rename it to Bye, and then delete it",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            updateBlog {"id":"{{createBlog._id}}","title":"Bye"}
            deleteBlog {"id":"{{createBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by Alice titled Hi saying hello, comment on it by Alice saying ok, then delete that comment, then list the comments of that blog",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"ok"}
            deleteComment {"id":"{{createComment._id}}"}
            listCommentsByBlog {"blogId":"{{createBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then show me the author",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        getAuthor {"id":"{{createAuthor._id}}"}
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by Alice titled Hi saying hello, then show me the blog and list its comments",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            getBlog {"id":"{{createBlog._id}}"}
            listCommentsByBlog {"blogId":"{{createBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "Get author 507f1f77bcf86cd799439011, then create a blog by that author titled Hi saying hello",
        expect![[r#"
            getAuthor {"id":"507f1f77bcf86cd799439011"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{getAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then list all authors",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        listAuthors {} after "createAuthor"
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io and list all blogs",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        listBlogs {}
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then delete Alice",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        deleteAuthor {"id":"{{createAuthor._id}}"}
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then update Alice's bio to Poet",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            updateAuthor {"id":"{{createAuthor._id}}","bio":"Poet"}
        "#]],
    );
}
