"""Instructor and LangChain ask for objects of a class: by a schema of the text, and by a call that
is forced."""

import json
import sys
from importlib.metadata import version
from typing import Literal

import instructor
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel, ConfigDict, Field

url, model = sys.argv[1:]
server = {"base_url": f"{url}/v1", "api_key": "any"}
messages = [{"role": "user", "content": "Ada is 36."}]


class Person(BaseModel):
    """A person."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=150)
    kind: Literal["new", "old"]


def by_instructor(mode: instructor.Mode) -> Person:
    client = instructor.from_openai(OpenAI(**server), mode=mode)
    asked = {"model": model, "messages": messages, "temperature": 0, "max_retries": 0}
    whole = client.chat.completions.create(response_model=Person, **asked)
    *_, last = client.chat.completions.create_partial(response_model=Person, **asked)
    Person.model_validate(last.model_dump())  # under another name, which is in the prompt
    return whole


def by_langchain(method: str) -> Person:
    chat = ChatOpenAI(model=model, **server, temperature=0)
    return chat.with_structured_output(Person, method=method).invoke(messages)


told = [
    by_instructor(instructor.Mode.JSON_SCHEMA),
    by_instructor(instructor.Mode.TOOLS),
    by_langchain("json_schema"),
    by_langchain("function_calling"),
]
assert all(isinstance(each, Person) for each in told), told
versions = ", ".join(f"{name} {version(name)}" for name in ("instructor", "langchain-openai"))
print(f"structures by {versions}:", json.dumps([each.model_dump() for each in told]))
