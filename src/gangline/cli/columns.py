"""Columns of a live line of progress."""

from rich.progress import Task, TextColumn
from rich.text import Text

from gangline.core.display import printable


class PlainColumn(TextColumn):
    """Words of a task, shown as they are: as no markup, and with control characters escaped."""

    def render(self, task: Task) -> Text:
        return Text(printable(self.text_format.format(task=task)))
