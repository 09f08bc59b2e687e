"""Courses from the exercises of the book, made and graded with nbgrader."""

from workingpapers.course.grading import grade
from workingpapers.course.kit import Report, check, make

__all__ = ["Report", "check", "grade", "make"]
