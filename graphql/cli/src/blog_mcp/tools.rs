use std::sync::Arc;

use mcp::EXAMPLES_FIELD;
use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(super) struct Offer {
    pub name: &'static str,
    pub description: &'static str,
    pub verb: Verb,
    pub kind: DocumentKind,
    pub fields: &'static [Field],
    pub examples: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Get,
    Update,
    Delete,
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocumentKind {
    Author,
    Blog,
    Comment,
    Picture,
}

#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub description: &'static str,
    pub rule: Rule,
    pub is_required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Id(DocumentKind),
    Email,
    Url,
    Line,
    Text,
}

const MAX_LINE_CHARS: usize = 500;
const MAX_TEXT_CHARS: usize = 100_000;

const fn required_field(name: &'static str, rule: Rule, description: &'static str) -> Field {
    Field { name, description, rule, is_required: true }
}

const fn optional_field(name: &'static str, rule: Rule, description: &'static str) -> Field {
    Field { name, description, rule, is_required: false }
}

const fn make_offer(
    name: &'static str,
    description: &'static str,
    verb: Verb,
    kind: DocumentKind,
    fields: &'static [Field],
    examples: &'static [&'static str],
) -> Offer {
    Offer { name, description, verb, kind, fields, examples }
}

const AUTHOR_FIELDS: &[Field] = &[
    required_field("name", Rule::Line, "Name of the author"),
    required_field("email", Rule::Email, "E-mail address of the author; no two authors share one"),
    optional_field("bio", Rule::Text, "A few words about the author"),
];
const AUTHOR_UPDATE_FIELDS: &[Field] = &[
    required_field("id", Rule::Id(DocumentKind::Author), "Id of the author"),
    optional_field("name", Rule::Line, "New name of the author"),
    optional_field("email", Rule::Email, "New e-mail address of the author"),
    optional_field("bio", Rule::Text, "New words about the author"),
];
const BLOG_FIELDS: &[Field] = &[
    required_field("title", Rule::Line, "Title of the blog post"),
    required_field("content", Rule::Text, "Content of the blog post: what it is about"),
    required_field(
        "authorId",
        Rule::Id(DocumentKind::Author),
        "Id of the author who writes the blog post",
    ),
];
const BLOG_UPDATE_FIELDS: &[Field] = &[
    required_field("id", Rule::Id(DocumentKind::Blog), "Id of the blog post"),
    optional_field("title", Rule::Line, "New title of the blog post"),
    optional_field("content", Rule::Text, "New content of the blog post"),
];
const COMMENT_FIELDS: &[Field] = &[
    required_field(
        "blogId",
        Rule::Id(DocumentKind::Blog),
        "Id of the blog post that is commented on",
    ),
    required_field(
        "authorId",
        Rule::Id(DocumentKind::Author),
        "Id of the author who writes the comment",
    ),
    required_field("content", Rule::Text, "Text of the comment"),
];
const PICTURE_FIELDS: &[Field] = &[
    required_field(
        "blogId",
        Rule::Id(DocumentKind::Blog),
        "Id of the blog post that the picture belongs to",
    ),
    required_field("url", Rule::Url, "Address of the picture"),
    optional_field("caption", Rule::Text, "Caption of the picture"),
];
const AUTHOR_ID_FIELDS: &[Field] =
    &[required_field("id", Rule::Id(DocumentKind::Author), "Id of the author")];
const BLOG_ID_FIELDS: &[Field] =
    &[required_field("id", Rule::Id(DocumentKind::Blog), "Id of the blog post")];
const COMMENT_ID_FIELDS: &[Field] =
    &[required_field("id", Rule::Id(DocumentKind::Comment), "Id of the comment")];
const PICTURE_ID_FIELDS: &[Field] =
    &[required_field("id", Rule::Id(DocumentKind::Picture), "Id of the picture")];
const COMMENT_LIST_FIELDS: &[Field] =
    &[required_field("blogId", Rule::Id(DocumentKind::Blog), "Id of the blog post")];

pub(super) const OFFERS: &[Offer] = &[
    make_offer(
        "createBlog",
        "Create a new blog post",
        Verb::Create,
        DocumentKind::Blog,
        BLOG_FIELDS,
        &[
            "Write a new blog post",
            "Publish a post with a title and a text",
            "Create a blog by an author",
        ],
    ),
    make_offer(
        "getBlog",
        "Get a blog post by its id",
        Verb::Get,
        DocumentKind::Blog,
        BLOG_ID_FIELDS,
        &["Show a blog post", "Read one blog post by its id", "What does that blog post say?"],
    ),
    make_offer(
        "updateBlog",
        "Change a blog post",
        Verb::Update,
        DocumentKind::Blog,
        BLOG_UPDATE_FIELDS,
        &["Change the title of a blog post", "Edit the text of a blog post", "Rename a blog"],
    ),
    make_offer(
        "deleteBlog",
        "Delete a blog post",
        Verb::Delete,
        DocumentKind::Blog,
        BLOG_ID_FIELDS,
        &["Delete a blog post", "Remove a blog", "Take a blog post down"],
    ),
    make_offer(
        "listBlogs",
        "List all blog posts",
        Verb::List,
        DocumentKind::Blog,
        &[],
        &["List all blog posts", "Which blogs are there?", "Show me every blog post"],
    ),
    make_offer(
        "createAuthor",
        "Create a new author",
        Verb::Create,
        DocumentKind::Author,
        AUTHOR_FIELDS,
        &[
            "Create a new author",
            "Add an author with a name and an e-mail address",
            "Register somebody who writes",
        ],
    ),
    make_offer(
        "getAuthor",
        "Get an author by their id",
        Verb::Get,
        DocumentKind::Author,
        AUTHOR_ID_FIELDS,
        &["Show an author", "Who is the author with this id?", "Look up one author"],
    ),
    make_offer(
        "updateAuthor",
        "Change an author",
        Verb::Update,
        DocumentKind::Author,
        AUTHOR_UPDATE_FIELDS,
        &[
            "Change the e-mail address of an author",
            "Rename an author",
            "Edit the words about an author",
        ],
    ),
    make_offer(
        "deleteAuthor",
        "Delete an author",
        Verb::Delete,
        DocumentKind::Author,
        AUTHOR_ID_FIELDS,
        &["Delete an author", "Remove an author", "Take an author out"],
    ),
    make_offer(
        "listAuthors",
        "List all authors",
        Verb::List,
        DocumentKind::Author,
        &[],
        &["List all authors", "Which authors are there?", "Show me everybody who writes"],
    ),
    make_offer(
        "createComment",
        "Create a comment on a blog post",
        Verb::Create,
        DocumentKind::Comment,
        COMMENT_FIELDS,
        &[
            "Comment on a blog post",
            "Add a comment to a blog",
            "Write what somebody says about a blog post",
        ],
    ),
    make_offer(
        "getComment",
        "Get a comment by its id",
        Verb::Get,
        DocumentKind::Comment,
        COMMENT_ID_FIELDS,
        &["Show a comment", "Read one comment by its id", "What does that comment say?"],
    ),
    make_offer(
        "deleteComment",
        "Delete a comment",
        Verb::Delete,
        DocumentKind::Comment,
        COMMENT_ID_FIELDS,
        &["Delete a comment", "Remove a comment from a blog post", "Take a comment back"],
    ),
    make_offer(
        "listCommentsByBlog",
        "List all comments on a blog post",
        Verb::List,
        DocumentKind::Comment,
        COMMENT_LIST_FIELDS,
        &[
            "List the comments on a blog post",
            "Which comments does a blog have?",
            "What do people say about a blog post?",
        ],
    ),
    make_offer(
        "createPicture",
        "Create a picture for a blog post",
        Verb::Create,
        DocumentKind::Picture,
        PICTURE_FIELDS,
        &[
            "Add a picture to a blog post",
            "Put an image with a caption on a blog",
            "Attach a photo to a blog post",
        ],
    ),
    make_offer(
        "getPicture",
        "Get a picture by its id",
        Verb::Get,
        DocumentKind::Picture,
        PICTURE_ID_FIELDS,
        &["Show a picture", "Look up one picture by its id", "Where is that image?"],
    ),
    make_offer(
        "deletePicture",
        "Delete a picture",
        Verb::Delete,
        DocumentKind::Picture,
        PICTURE_ID_FIELDS,
        &["Delete a picture", "Remove an image from a blog post", "Take a photo away"],
    ),
    make_offer(
        "listPicturesByBlog",
        "List all pictures of a blog post",
        Verb::List,
        DocumentKind::Picture,
        COMMENT_LIST_FIELDS,
        &[
            "List the pictures of a blog post",
            "Which images does a blog have?",
            "Show me all photos of a blog post",
        ],
    ),
];

impl DocumentKind {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Author => "author",
            Self::Blog => "blog post",
            Self::Comment => "comment",
            Self::Picture => "picture",
        }
    }

    fn fields(self) -> &'static [Field] {
        match self {
            Self::Author => AUTHOR_FIELDS,
            Self::Blog => BLOG_FIELDS,
            Self::Comment => COMMENT_FIELDS,
            Self::Picture => PICTURE_FIELDS,
        }
    }
}

impl Offer {
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.verb, Verb::Get | Verb::List)
    }

    pub(super) fn tool(&self) -> Tool {
        let hints = ToolAnnotations::new().read_only(self.is_read_only()).open_world(false);
        let hints = match self.verb {
            Verb::Get | Verb::List => hints.destructive(false).idempotent(true),
            Verb::Create => hints.destructive(false).idempotent(false),
            Verb::Update | Verb::Delete => hints.destructive(true).idempotent(true),
        };
        let tool = Tool::new(self.name, self.description, Arc::new(self.input_schema()));
        let meta = Map::from_iter([(EXAMPLES_FIELD.to_owned(), json!(self.examples))]);
        let tool = tool.with_annotations(hints).with_meta(MetaObject(meta));
        match self.output_schema() {
            Some(schema) => tool.with_raw_output_schema(Arc::new(schema)),
            None => tool,
        }
    }

    pub(super) fn input_schema(&self) -> Map<String, Value> {
        object_schema(
            field_schemas(self.fields),
            &required_names(self.fields).collect::<Vec<_>>(),
            Some(false),
        )
    }

    /// Returns the JSON Schema of the output, if it is always an object.
    pub(super) fn output_schema(&self) -> Option<Map<String, Value>> {
        match self.verb {
            Verb::Create | Verb::Update => Some(record_schema(self.kind)),
            Verb::Delete => {
                let success = json!({ "type": "boolean", "description": "Always true" });
                let properties = Map::from_iter([("success".to_owned(), success)]);
                Some(object_schema(properties, &["success"], None))
            }
            Verb::Get | Verb::List => None,
        }
    }
}

fn record_schema(kind: DocumentKind) -> Map<String, Value> {
    let noun = kind.noun();
    let mut all = Map::new();
    all.insert("_id".to_owned(), id_schema(&format!("Id of the {noun}")));
    all.extend(field_schemas(kind.fields()));
    for (name, change) in [("createdAt", "created"), ("updatedAt", "changed last")] {
        let description = format!("When the {noun} was {change}");
        let schema = json!({ "type": "string", "format": "date-time", "description": description });
        all.insert(name.to_owned(), schema);
    }
    let ours = ["createdAt", "updatedAt"];
    let required = std::iter::once("_id").chain(required_names(kind.fields())).chain(ours);
    object_schema(all, &required.collect::<Vec<_>>(), None)
}

fn object_schema(
    properties: Map<String, Value>,
    required: &[&str],
    additional: Option<bool>,
) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("required".to_owned(), json!(required));
    if let Some(additional) = additional {
        schema.insert("additionalProperties".to_owned(), json!(additional));
    }
    schema
}

fn field_schemas(fields: &[Field]) -> Map<String, Value> {
    fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect()
}

fn required_names(fields: &'static [Field]) -> impl Iterator<Item = &'static str> {
    fields.iter().filter(|field| field.is_required).map(|field| field.name)
}

fn id_schema(description: &str) -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-fA-F]{24}$", "description": description })
}

impl Field {
    fn schema(&self) -> Value {
        let description = self.description;
        match self.rule {
            Rule::Id(_) => id_schema(description),
            Rule::Email => json!({
                "type": "string",
                "format": "email",
                "pattern": r"^[^@\s]+@[^@\s]+$",
                "maxLength": MAX_LINE_CHARS,
                "description": description,
            }),
            Rule::Url => json!({
                "type": "string",
                "format": "uri",
                "pattern": r"^[A-Za-z][A-Za-z0-9+.-]*:\S+$",
                "maxLength": MAX_TEXT_CHARS,
                "description": description,
            }),
            Rule::Line => json!({
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_LINE_CHARS,
                "description": description,
            }),
            Rule::Text => {
                json!({ "type": "string", "maxLength": MAX_TEXT_CHARS, "description": description })
            }
        }
    }
}
