"""The layouts that `nested` knows: for each program or site, the names under which its posts stand."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ramify.readers.json_fields import Field, at

DELETED, REMOVED = "[deleted]", "[removed]"


@dataclass(frozen=True)
class Layout:
    """The names of fields in the posts of one source. Several names of a field are tried in order.

    A `title` or `meta` that begins with "/" is looked up in the whole document, for roots only. `marks`: the fields that a
    post has in this source and hardly in any other; `document`: those of the whole document. `within`: the keys that lead to
    posts. A post in one of the `children` of another answers it; else its `parent` is named, or it answers the `top` of its
    tree. With a `parent` and without a `tree`, trees follow from the parents.
    """

    marks: Sequence[str]
    id: Sequence[Field] = ("id",)
    text: Sequence[Field] = ()
    html: Sequence[Field] = ()
    title: Sequence[Field] = ()
    author: Sequence[Field] = ("author",)
    time: Sequence[Field] = ()
    kind: Sequence[Field] = ()
    label: Sequence[Field] = ()
    children: Sequence[str] = ()
    unread: Sequence[str] = ()
    """The fields whose posts the user leaves out."""
    parent: Sequence[Field] = ()
    tree: Sequence[Field] = ()
    top: str | None = None
    within: Sequence[str] = ()
    document: Sequence[str] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    """Field that is set for a lost post -> the text that stands for the reason."""
    null_is: str | None = None
    """The text of a post whose text is null and that has no title."""
    nobody: Sequence[str] = ()
    """Names that stand for a deleted account."""
    no_parent: Sequence[str] = ()
    """Values of `parent` that stand for none."""
    prefix: re.Pattern[str] | None = None
    """The pattern of the parts that are removed from ids."""
    root: "Layout | None" = None
    """The names of a post that each of its comments repeats."""
    own_numbers: bool = False
    """Whether comments and posts are numbered apart, so that a comment may have the id of its post."""
    num_children: Sequence[str] = ()
    """The number of answers that a post has at its source."""
    all_ids: Sequence[str] = ()
    """The ids of all posts of a document at its source."""
    meta: Mapping[str, Sequence[Field]] = field(default_factory=dict)
    """Name in the metadata of a tree -> fields of its root."""
    late: str = ""
    """The ending of files in which posts stand behind other content of any size."""


def _lemmy_parent(item: dict[str, Any]) -> Any:
    """The comment above the last one in a path such as 0.5.6; none for 0.5."""
    path = at(item, "comment.path")
    ids = path.split(".") if isinstance(path, str) else []
    return ids[-2] if len(ids) > 2 else None


def _youtube_parent(item: dict[str, Any]) -> Any:
    """The comment of an answer, whose id is that of the comment, a point, and its own."""
    name = item.get("cid")
    return name.rpartition(".")[0] or None if isinstance(name, str) else None


_GITHUB = re.compile(r"github\.com/(?:repos/)?([\w.-]+/[\w.-]+)/(?:issues|pull|pulls|discussions)/(\d+)")


def _github_tree(item: dict[str, Any]) -> Any:
    """owner/repository#5 from the addresses of an item."""
    for name in ("html_url", "issue_url", "pull_request_url", "url", "permalink", "resourcePath"):
        address = f"github.com{item.get(name)}" if name == "resourcePath" else item.get(name)
        if isinstance(address, str) and (match := _GITHUB.search(address)):
            return f"{match[1]}#{match[2]}"
    return item.get("number")


_GITHUB_POST = Layout(
    marks=("number", "title", "body"), id=("number", "id", "databaseId"), text=("body", "bodyText"), html=("bodyHTML",),
    title=("title",), author=("user", "author"), time=("created_at", "createdAt", "submittedAt"),
    children=("comments", "reviews", "replies"),
    parent=("in_reply_to_id", "replyTo.id"), tree=(_github_tree,),
    within=(
        "data", "repository", "organization", "search", "issue", "issues", "discussion", "discussions", "pullRequest",
        "pullRequests", "nodes", "edges", "node", "items", "comments",
    ), own_numbers=True, meta={"url": ("html_url", "url")},
)  # fmt: skip

LAYOUTS: dict[str, Layout] = {
    "hacker-news": Layout(
        marks=("id", "children", "created_at_i"), html=("text",), title=("title",), time=("created_at_i", "created_at"),
        children=("children",), null_is=DELETED,
    ),
    "hacker-news-items": Layout(
        marks=("id", "type", "by", "time"), html=("text",), title=("title",), author=("by",), time=("time",), kind=("type",),
        parent=("parent",), gone={"deleted": DELETED, "dead": REMOVED},
    ),
    "discourse": Layout(
        marks=("post_number", "topic_id"), id=("post_number",), text=("raw",), html=("cooked",),
        title=("/title", "/fancy_title"), author=("username",), time=("created_at",), parent=("reply_to_post_number",),
        tree=("topic_id",), top="1", within=("post_stream", "posts", "latest_posts"),
        gone={"deleted_at": DELETED, "user_deleted": DELETED, "hidden": REMOVED}, all_ids=("post_stream.stream",),
    ),
    "lemmy": Layout(
        marks=("comment.id", "comment.path"), id=("comment.id",), text=("comment.content",),
        author=("creator.name", "creator.display_name"), time=("comment.published", "comment.published_at"),
        parent=(_lemmy_parent,), tree=("comment.post_id", "post.id"), within=("comments", "post_view", "comment_view"),
        gone={"comment.deleted": DELETED, "comment.removed": REMOVED},
        root=Layout(
            (), id=("post.id",), title=("post.name",), text=("post.body",), time=("post.published", "post.published_at")
        ), own_numbers=True,
    ),
    "mastodon": Layout(
        marks=("in_reply_to_id", "account"), html=("content",), title=("spoiler_text",),
        author=("account.acct", "account.username"), time=("created_at",), parent=("in_reply_to_id",),
        within=("ancestors", "descendants", "statuses"),
    ),
    "mastodon-archive": Layout(
        marks=("object.id", "object.inReplyTo"), id=("object.id",), html=("object.content",), title=("object.summary",),
        author=("object.attributedTo", "actor"), time=("object.published", "published"), parent=("object.inReplyTo",),
        within=("orderedItems",),
    ),
    "youtube": Layout(
        marks=("id", "snippet"), text=("snippet.topLevelComment.snippet.textOriginal", "snippet.textOriginal"),
        html=("snippet.topLevelComment.snippet.textDisplay", "snippet.textDisplay"),
        author=("snippet.topLevelComment.snippet.authorDisplayName", "snippet.authorDisplayName"),
        time=("snippet.topLevelComment.snippet.publishedAt", "snippet.publishedAt"), children=("replies",),
        parent=("snippet.parentId",), tree=("snippet.parentId", "id"), within=("items", "comments"),
        meta={"video": ("snippet.videoId",)}, num_children=("snippet.totalReplyCount",),
    ),
    "youtube-comment-downloader": Layout(
        marks=("cid", "text", "votes"), id=("cid",), text=("text",), time=("time_parsed",), parent=(_youtube_parent,),
        tree=(_youtube_parent, "cid"), within=("comments",),
    ),
    "yt-dlp": Layout(
        marks=("id", "text", "parent"), text=("text",), html=("html",), author=("author", "author_id"), time=("timestamp",),
        parent=("parent",), no_parent=("root",), within=("comments", "entries"), document=("comments",),
        meta={"title": ("/title",), "video": ("/id",)}, late=".info.json",
    ),
    "github": _GITHUB_POST,
    "github-comments": replace(_GITHUB_POST, marks=("id", "body", "html_url", "user"), id=("id",)),
    "bdfr": Layout(
        marks=("id", "selftext", "upvote_ratio", "pinned", "comments"), text=("selftext", "body"), title=("title",),
        time=("created_utc",), children=("comments", "replies"), parent=("parent_id",), tree=("submission",),
        nobody=("DELETED", DELETED), prefix=re.compile("t[0-9]_"),
    ),
}  # fmt: skip
