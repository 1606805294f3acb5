-- Clusters by the name that callers gave them. The text is kept as given, as JSON.
create table clusters (
    name       text primary key not null,
    cluster    text not null check (json_valid(cluster)),
    hash       text not null,
    updated_at datetime not null
);
